"""A router with keys asks for one over gRPC as over HTTP: of every method but the health service's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.patience import PATIENCE_S
from support.router.fronts import Front, front
from support.router.grpc_calls import calling, message_of, refused, streamed, trailers

from octavo.proto.v1 import octavo_pb2, octavo_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="module")
KEY = "sk-octavo-1"
GOOD = {"prompt": "x", "max_tokens": 2}
NO_KEY = (grpc.StatusCode.UNAUTHENTICATED, "invalid_api_key", None)
Metadata = tuple[tuple[str, str], ...]
Stub = octavo_pb2_grpc.InferenceStub


def bearer(key: str) -> Metadata:
    return (("authorization", f"Bearer {key}"),)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Front, Path]]:
    folder = tmp_path_factory.mktemp("locked")
    keys = folder / "keys"
    keys.write_text(f"{KEY}\n")
    async with front(folder, "--api-keys-file", str(keys)) as served:
        yield served, keys


CALLS: dict[str, Callable[[Stub, Metadata], Awaitable[object]]] = {
    "Generate": lambda stub, key: stub.Generate(message_of(GOOD), metadata=key),
    "GenerateStream": lambda stub, key: streamed(stub, message_of(GOOD), metadata=key),
    "Tokenize": lambda stub, key: stub.Tokenize(
        octavo_pb2.TokenizeRequest(prompt=[octavo_pb2.Prompt(text="x")]), metadata=key
    ),
    "Detokenize": lambda stub, key: stub.Detokenize(octavo_pb2.DetokenizeRequest(token_ids=[1]), metadata=key),
    "ListModels": lambda stub, key: stub.ListModels(octavo_pb2.ListModelsRequest(), metadata=key),
    "GetModel": lambda stub, key: stub.GetModel(octavo_pb2.GetModelRequest(model="m"), metadata=key),
}
WRONG: list[Metadata] = [
    (),
    bearer("sk-octavo-2"),
    (("authorization", KEY),),
    (("x-api-key", KEY),),
    (*bearer(KEY), *bearer("sk-octavo-2")),
]


async def test_every_method_is_called() -> None:
    assert CALLS.keys() == {method.name for method in octavo_pb2.DESCRIPTOR.services_by_name["Inference"].methods}


@pytest.mark.parametrize("method", CALLS)
async def test_without_a_key_or_with_a_wrong_one_each_method_is_refused(
    locked: tuple[Front, Path], method: str
) -> None:
    async with calling(locked[0].router.grpc) as stub:
        for key in WRONG:
            assert await refused(CALLS[method](stub, key)) == NO_KEY
        await CALLS[method](stub, bearer(KEY))


async def test_a_refusal_tells_what_http_tells_and_no_key(locked: tuple[Front, Path]) -> None:
    async with calling(locked[0].router.grpc) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(message_of(GOOD), metadata=bearer("sk-guess"))
    assert trailers(caught.value)["octavo-error-type"] == "invalid_request_error"
    assert "Authorization: Bearer KEY" in (caught.value.details() or "") and "guess" not in (
        caught.value.details() or ""
    )


async def test_reflection_and_methods_that_do_not_exist_need_a_key_too(locked: tuple[Front, Path]) -> None:
    async with grpc.aio.insecure_channel(locked[0].router.grpc) as channel:
        services = reflection_pb2_grpc.ServerReflectionStub(channel)
        assert await refused(services.ServerReflectionInfo().read()) == NO_KEY
        call = services.ServerReflectionInfo(metadata=bearer(KEY))
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        named = [service.name for service in (await call.read()).list_services_response.service]
        assert "octavo.v1.Inference" in named
        call.cancel()
        for path in ("/octavo.v1.Inference/NoSuch", "/no.such.Service/Method", "/grpc.health.v1.Healthy/Check"):
            unknown = channel.unary_unary(path)
            assert await refused(unknown(b"", metadata=())) == NO_KEY
            assert (await refused(unknown(b"", metadata=bearer(KEY))))[0] == grpc.StatusCode.UNIMPLEMENTED


async def test_a_call_without_a_key_is_refused_before_its_message_comes(locked: tuple[Front, Path]) -> None:
    async with grpc.aio.insecure_channel(locked[0].router.grpc) as channel:
        call = channel.stream_unary("/octavo.v1.Inference/Generate")()
        assert await asyncio.wait_for(call.code(), PATIENCE_S) == grpc.StatusCode.UNAUTHENTICATED


async def test_health_needs_no_key(locked: tuple[Front, Path]) -> None:
    async with grpc.aio.insecure_channel(locked[0].router.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == serving
        watch = health.Watch(health_pb2.HealthCheckRequest(service="octavo.v1.Inference"))
        assert (await watch.read()).status == serving
        watch.cancel()


async def test_refusals_are_counted_and_reach_no_group(locked: tuple[Front, Path]) -> None:
    served, _ = locked
    submits = len(served.leader.submits)
    async with calling(served.router.grpc) as stub:
        for _ in range(3):
            await refused(stub.Generate(message_of(GOOD)))
    assert len(served.leader.submits) == submits
    lines = [line for line in (await served.router.metrics()).splitlines() if 'code="401"' in line and "other" in line]
    assert lines and float(lines[0].rpartition(" ")[2]) >= 3


async def test_keys_that_are_replaced_count_for_grpc_too(locked: tuple[Front, Path]) -> None:
    served, keys = locked
    keys.write_text("sk-octavo-3\n")
    try:
        async with calling(served.router.grpc) as stub, asyncio.timeout(PATIENCE_S):
            while await _is_refused(stub, bearer("sk-octavo-3")):
                await asyncio.sleep(0.1)
            assert await refused(stub.Generate(message_of(GOOD), metadata=bearer(KEY))) == NO_KEY
    finally:
        keys.write_text(f"{KEY}\n")


async def _is_refused(stub: Stub, key: Metadata) -> bool:
    try:
        await stub.Generate(message_of(GOOD), metadata=key)
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED
        return True
    return False
