"""The same bad request over HTTP and gRPC gets the same verdict, which names the same field."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from support.patience import PATIENCE_S
from support.router.fake_leader import Script, serving
from support.router.grpc_calls import Refusal, calling, joined, message_of, refused, streamed
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import LOOP, byte_level, files, write

from octavo.proto.v1 import octavo_pb2, octavo_pb2_grpc
from octavo.router.frontend.grpc.grpc_errors import STATUSES

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]  # Any: JSON
Stub = octavo_pb2_grpc.InferenceStub
CODES = grpc.StatusCode
CONTEXT = 2048
TEXT = {"model": "m", "prompt": "x", "max_tokens": 2}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def router(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningRouter]:
    folder = tmp_path_factory.mktemp("grpc-bad-input")
    address = f"unix:{folder}/leader.sock"
    model = write(folder / "model", files(byte_level()))
    script = Script(tokenizer=model, served_name="m", context_length=CONTEXT, interval_s=0.005, ids=(300, 301, 302))
    async with serving(script, address), routing([address]) as router:
        yield router


@pytest_asyncio.fixture(loop_scope="module")
async def stub(router: RunningRouter) -> AsyncIterator[Stub]:
    """With a stream beside, which must end as if nothing had happened."""
    async with calling(router.grpc) as stub:
        beside = asyncio.ensure_future(streamed(stub, message_of(TEXT | {"max_tokens": 200})))
        await asyncio.sleep(0.1)
        yield stub
        whole = joined(await asyncio.wait_for(beside, PATIENCE_S))
        assert whole.usage.completion_tokens == 200
        assert await router.status("/readyz") == 200


async def over_http(router: RunningRouter, body: Json) -> Refusal | None:
    """As gRPC has it; None for an answer."""
    path = "/v1/chat/completions" if body.get("messages") else "/v1/completions"
    status, answer = await router.post(path, body)
    if status == 200:
        return None
    return STATUSES[status], answer["error"]["code"], answer["error"]["param"]


TABLE: list[tuple[Json, str]] = [
    (TEXT | {"max_tokens": 0}, "max_tokens"),
    (TEXT | {"max_tokens": -1}, "max_tokens"),
    (TEXT | {"max_tokens": CONTEXT}, "max_tokens"),
    (TEXT | {"temperature": -0.1}, "temperature"),
    (TEXT | {"top_p": 0}, "top_p"),
    (TEXT | {"top_k": -2}, "top_k"),
    (TEXT | {"stop": [""]}, "stop"),
    (TEXT | {"stop_token_ids": [2**32 - 1]}, "stop_token_ids"),
    (TEXT | {"model": "nope"}, "model"),
    (TEXT | {"prompt": ""}, "prompt"),
    (TEXT | {"prompt": []}, "prompt"),
    (TEXT | {"prompt": None}, "prompt"),
    (TEXT | {"prompt": ["", "x"]}, "prompt[0]"),
    (TEXT | {"prompt": [[1], []]}, "prompt[1]"),
    (TEXT | {"prompt": [999_999]}, "prompt"),
    (TEXT | {"prompt": [300] * 3_000}, "prompt"),
    (TEXT | {"prompt": "word " * 100_000}, "prompt"),
    (CHAT | {"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role"),
    (CHAT | {"messages": [{"role": "user"}]}, "messages[0].content"),
    (CHAT | {"messages": [{"role": "user", "content": "word " * 3_000}]}, "messages"),
    (CHAT | {"max_tokens": CONTEXT}, "max_tokens"),
    (CHAT | {"prompt": "x"}, "prompt"),
    (CHAT | {"model": "nope"}, "model"),
]


async def test_each_bad_request_has_one_verdict_streaming_and_not(router: RunningRouter, stub: Stub) -> None:
    for body, field in TABLE:
        verdict = await over_http(router, body)
        assert verdict is not None and verdict[2] == field, body
        request = message_of(body)
        assert await refused(stub.Generate(request)) == verdict, body
        assert await refused(streamed(stub, request)) == verdict, body


async def test_random_bytes_are_refused_as_the_clients_fault(router: RunningRouter, stub: Stub) -> None:
    draw, refusals = random.Random(5), Counter[str]()
    async with grpc.aio.insecure_channel(router.grpc) as channel:
        for method in ("Generate", "Tokenize", "Detokenize", "GetModel", "ListModels"):
            call = channel.unary_unary(f"/octavo.v1.Inference/{method}")
            for _ in range(20):
                data = bytes([draw.choice((0xFF, 0x0A, 0x12, 0x07)), *draw.randbytes(draw.randint(1, 30))])
                try:
                    await call(data)
                except grpc.aio.AioRpcError as error:
                    assert error.code() in (CODES.INVALID_ARGUMENT, CODES.NOT_FOUND), (method, data, error)
                    refusals[method] += 1
    assert refusals["Generate"] == 20, "what can be read has no prompt"
    assert all(refusals[method] >= 10 for method in ("Tokenize", "Detokenize", "GetModel", "ListModels")), refusals


async def test_a_call_without_a_message_and_one_of_no_method_are_refused(router: RunningRouter) -> None:
    async with grpc.aio.insecure_channel(router.grpc) as channel:
        empty = channel.stream_unary("/octavo.v1.Inference/Generate")(iter(()))
        assert await refused(empty) == (CODES.INVALID_ARGUMENT, "invalid_message", None)
        other = channel.unary_unary("/octavo.v1.Inference/Train")(b"")
        assert (await refused(other))[0] == CODES.UNIMPLEMENTED


async def test_large_messages_are_taken_up_to_the_bound_of_http(router: RunningRouter, stub: Stub) -> None:
    for count, code in ((900_000, "context_length_exceeded"), (1_200_000, "too_many_tokens")):
        ids = octavo_pb2.Prompt(token_ids=octavo_pb2.TokenIds(ids=[300] * count))
        refusal = await refused(stub.Generate(octavo_pb2.GenerateRequest(prompt=[ids])))
        assert refusal == (CODES.INVALID_ARGUMENT, code, "prompt")
    status, code, field = await refused(stub.Generate(message_of({"prompt": "word " * 1_200_000})))
    assert (status, field) == (CODES.INVALID_ARGUMENT, "prompt") or code == "too_slow_to_tokenise"
    assert (await refused(stub.Generate(message_of({"prompt": "x" * (9 << 20)}))))[0] == CODES.RESOURCE_EXHAUSTED
    name = octavo_pb2.GetModelRequest(model="m" * (1 << 20))
    assert await refused(stub.GetModel(name)) == (CODES.RESOURCE_EXHAUSTED, "body_too_large", None)


async def test_messages_of_nothing_but_unknown_fields_cost_other_requests_nothing(
    router: RunningRouter, stub: Stub
) -> None:
    many = b"\x90\x4d\x01" * (1 << 20)
    async with grpc.aio.insecure_channel(router.grpc) as channel:
        for method in ("Generate", "Tokenize", "Detokenize"):
            answer = channel.unary_unary(f"/octavo.v1.Inference/{method}")(many)
            status, code, _ = await refused(answer)
            assert status == CODES.INVALID_ARGUMENT and code in ("unsupported_field", "too_slow_to_tokenise")


async def test_a_template_that_loops_fails_only_its_own_call(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("loop")
    address = f"unix:{folder}/leader.sock"
    model = write(folder / "model", files(byte_level(), LOOP))
    script = Script(tokenizer=model, served_name="m", context_length=CONTEXT, interval_s=0.02, ids=(300, 301, 302))
    async with serving(script, address), routing([address]) as router, calling(router.grpc) as stub:
        stream = asyncio.ensure_future(streamed(stub, message_of(TEXT | {"max_tokens": 200})))
        verdict = await over_http(router, CHAT)
        assert verdict == (CODES.INVALID_ARGUMENT, "too_slow_to_tokenise", "messages")
        assert await refused(stub.Generate(message_of(CHAT))) == verdict
        assert joined(await asyncio.wait_for(stream, PATIENCE_S)).usage.completion_tokens == 200
