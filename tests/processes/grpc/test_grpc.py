"""What a generated gRPC client of a real router sees of good answers, and what the leader sees of it."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from support.patience import PATIENCE_S
from support.router.fake_leader import FakeLeader, Script, serving
from support.router.grpc_calls import calling, joined, message_of, refusal, refused, streamed, trailers
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import byte_level, files, write

from octavo.proto.v1 import octavo_pb2, octavo_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKENIZER = byte_level()
STORY = "Once upon a time there was a naïve café 日本語 🌶 and ABCDEFGHIJ the end."
CONTEXT = 65_536
PROTO = Path(__file__).parents[3] / "proto" / "v1"
CODES = grpc.StatusCode
Stub = octavo_pb2_grpc.InferenceStub


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text).ids)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[FakeLeader, RunningRouter]]:
    folder = tmp_path_factory.mktemp("grpc")
    address = f"unix:{folder}/leader.sock"
    script = Script(tokenizer=write(folder / "model", files(TOKENIZER)), served_name="m", context_length=CONTEXT)
    async with serving(script, address) as leader, routing([address]) as router:
        yield leader, router


@pytest.fixture
def leader(pair: tuple[FakeLeader, RunningRouter]) -> FakeLeader:
    """It tells the story, a token each 5 ms."""
    leader, _ = pair
    leader.script = replace(leader.script, ids=ids(STORY), interval_s=0.005)
    leader.fail_at = leader.refuse = None
    leader.submits.clear()
    leader.cancels.clear()
    return leader


@pytest.fixture
def router(pair: tuple[FakeLeader, RunningRouter], leader: FakeLeader) -> RunningRouter:
    return pair[1]


@pytest_asyncio.fixture(loop_scope="module")
async def stub(router: RunningRouter) -> AsyncIterator[Stub]:
    async with calling(router.grpc) as stub:
        yield stub


ASKED = [
    {"prompt": "tell", "max_tokens": 40},
    {"prompt": [300, 301], "max_tokens": 7},
    {"prompt": ["one", [5, 6], "three"], "max_tokens": 12},
    {"prompt": ["one two", "three"], "n": 2, "max_tokens": 5, "truncate_prompt_tokens": 1, "cache_salt": "mine"},
    {"prompt": "tell", "max_tokens": 500, "stop": ["FGH", "zzz"]},
    {"messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "tell"}], "max_tokens": 9},
]


@pytest.mark.parametrize("body", ASKED)
async def test_whole_streamed_and_over_http_an_answer_is_the_same(
    router: RunningRouter, stub: Stub, body: dict
) -> None:
    request = message_of({"model": "m"} | body)
    whole = await stub.Generate(request)
    parts = joined(await streamed(stub, request))
    assert whole.id != parts.id and whole.model == "m"
    parts.id = whole.id
    assert parts == whole
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    _, http = await router.post(path, {"model": "m"} | body)
    texts = [choice["text"] if "text" in choice else choice["message"]["content"] for choice in http["choices"]]
    assert [output.text for output in whole.outputs] == texts
    reasons = {"stop": octavo_pb2.FINISH_REASON_STOP, "length": octavo_pb2.FINISH_REASON_LENGTH}
    assert [output.finish_reason for output in whole.outputs] == [reasons[c["finish_reason"]] for c in http["choices"]]
    assert whole.usage.prompt_tokens == http["usage"]["prompt_tokens"]
    assert whole.usage.completion_tokens == http["usage"]["completion_tokens"]
    assert sum(len(output.token_ids) for output in whole.outputs) == whole.usage.completion_tokens
    for output in whole.outputs:
        count = len(output.token_ids)
        assert tuple(output.token_ids) == (ids(STORY) * 20)[:count]


async def test_every_parameter_reaches_the_engine(stub: Stub, leader: FakeLeader) -> None:
    sampling = {"temperature": 0.5, "top_p": 0.25, "top_k": 7, "seed": -2}
    await stub.Generate(
        message_of({"prompt": "x", "max_tokens": 2, "stop_token_ids": [9], "ignore_eos": True} | sampling)
    )
    submit = leader.submits[-1]
    assert (submit.sampling.temperature, submit.sampling.top_p, submit.sampling.top_k) == (0.5, 0.25, 7)
    assert submit.sampling.seed == 2**64 - 2
    assert (submit.limits.max_tokens, list(submit.limits.stop_ids), submit.limits.ignore_eos) == (2, [9], True)


async def test_ids_and_text_go_there_and_back(stub: Stub) -> None:
    text = "naïve café 🌶 1,234"
    made = await stub.Tokenize(octavo_pb2.TokenizeRequest(prompt=[octavo_pb2.Prompt(text=text)]))
    assert tuple(made.token_ids) == ids(text) and made.context_length == CONTEXT
    assert (await stub.Detokenize(octavo_pb2.DetokenizeRequest(token_ids=made.token_ids))).text == text
    many = octavo_pb2.DetokenizeRequest(token_ids=list(made.token_ids) * 2_000)
    assert (await stub.Detokenize(many)).text == text * 2_000, "by a helper"
    assert (await stub.Detokenize(octavo_pb2.DetokenizeRequest())).text == ""
    message = octavo_pb2.Message(role="user", content="hi")
    chat = await stub.Tokenize(octavo_pb2.TokenizeRequest(messages=[message]))
    shown = await stub.Detokenize(octavo_pb2.DetokenizeRequest(token_ids=chat.token_ids))
    assert shown.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


async def test_what_cannot_be_tokenised_or_detokenised_is_refused(stub: Stub) -> None:
    bad = octavo_pb2.DetokenizeRequest(token_ids=[5, 999_999])
    assert await refused(stub.Detokenize(bad)) == (CODES.INVALID_ARGUMENT, "invalid_value", "token_ids")
    bad = octavo_pb2.DetokenizeRequest(token_ids=[999_999] * 5_000)
    assert await refused(stub.Detokenize(bad)) == (CODES.INVALID_ARGUMENT, "invalid_value", "token_ids")
    other = octavo_pb2.DetokenizeRequest(model="other", token_ids=[5])
    assert await refused(stub.Detokenize(other)) == (CODES.NOT_FOUND, "model_not_found", "model")
    nothing = octavo_pb2.TokenizeRequest()
    assert await refused(stub.Tokenize(nothing)) == (CODES.INVALID_ARGUMENT, "invalid_value", "prompt")


async def test_the_model_is_listed(stub: Stub) -> None:
    model = octavo_pb2.Model(id="m", context_length=CONTEXT)
    assert list((await stub.ListModels(octavo_pb2.ListModelsRequest())).models) == [model]
    assert await stub.GetModel(octavo_pb2.GetModelRequest(model="m")) == model
    other = octavo_pb2.GetModelRequest(model="other")
    assert await refused(stub.GetModel(other)) == (CODES.NOT_FOUND, "model_not_found", "model")


async def test_a_client_that_knows_nothing_learns_the_api_by_reflection_and_calls_it(router: RunningRouter) -> None:
    def ask() -> tuple[set[str], str]:
        with grpc.insecure_channel(router.grpc) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            services = set(database.get_services())
            pool = descriptor_pool.DescriptorPool(database)
            method = pool.FindServiceByName("octavo.v1.Inference").FindMethodByName("Generate")
            request = message_factory.GetMessageClass(method.input_type)
            response = message_factory.GetMessageClass(method.output_type)
            call = channel.unary_unary(
                "/octavo.v1.Inference/Generate",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            return services, call(request(prompt=[{"text": "x"}], max_tokens=3), timeout=PATIENCE_S).outputs[0].text

    services, text = await asyncio.to_thread(ask)
    wanted = {"octavo.v1.Inference", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert services == wanted
    assert text == TOKENIZER.decode(list(ids(STORY)[:3]))


OWN_CLIENT = """
import sys, grpc, octavo_pb2, octavo_pb2_grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = octavo_pb2_grpc.InferenceStub(channel)
    asked = octavo_pb2.GenerateRequest(prompt=[octavo_pb2.Prompt(text="x")], max_tokens=3)
    whole = stub.Generate(asked, timeout=100).outputs[0].text
    pieces = [output.text for chunk in stub.GenerateStream(asked, timeout=100) for output in chunk.outputs]
    assert "".join(pieces) == whole
    print(whole, end="")
"""


async def test_a_client_made_from_nothing_but_the_proto_file_is_served(router: RunningRouter, tmp_path: Path) -> None:
    """In a process of its own: it must not find our generated modules."""
    made = (f"-I{PROTO}", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}", "octavo.proto")
    for command in (("-m", "grpc_tools.protoc", *made), ("-c", OWN_CLIENT, router.grpc)):
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, cwd=tmp_path, stdout=PIPE, stderr=PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0, err.decode()
    assert out.decode() == TOKENIZER.decode(list(ids(STORY)[:3]))


async def test_the_example_prints_the_answer_or_what_is_wrong(router: RunningRouter) -> None:
    example = Path(__file__).parents[3] / "examples/grpc_client.py"

    async def run(*arguments: str) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(example), router.grpc, *arguments, stdout=PIPE, stderr=PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        return process.returncode, out.decode(), err.decode()

    code, out, _ = await run("Tell me")
    assert code == 0 and out == TOKENIZER.decode(list((ids(STORY) * 2)[:64])) + "\n"
    code, _, err = await run("7" * 100_000)  # a token each
    assert code == 1 and "INVALID_ARGUMENT at messages" in err


async def test_twenty_streams_at_once_are_each_right(stub: Stub) -> None:
    requests = [message_of({"prompt": f"stream {n}", "max_tokens": 30 + n}) for n in range(20)]
    answers = await asyncio.gather(*(streamed(stub, request) for request in requests))
    for n, chunks in enumerate(answers):
        whole = joined(chunks)
        assert tuple(whole.outputs[0].token_ids) == (ids(STORY) * 2)[: 30 + n]
        assert whole.usage.completion_tokens == 30 + n
    assert len({chunks[0].id for chunks in answers}) == 20


async def cancelled(leader: FakeLeader, count: int = 1) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(leader.cancels) < count or leader.under_way:
            await asyncio.sleep(0.01)


async def test_a_call_that_is_cancelled_is_cancelled_in_the_engine(
    router: RunningRouter, stub: Stub, leader: FakeLeader
) -> None:
    request = message_of({"prompt": ["x", "y"], "max_tokens": 20_000})
    stream = stub.GenerateStream(request)
    await stream.read()
    stream.cancel()
    await cancelled(leader, 2)
    leader.cancels.clear()
    whole = stub.Generate(request)
    async with asyncio.timeout(PATIENCE_S):
        while leader.under_way < 2:
            await asyncio.sleep(0.01)
    whole.cancel()
    await cancelled(leader, 2)
    async with asyncio.timeout(PATIENCE_S):
        while not await _counted(router, 'code="499",endpoint="grpc_generate"'):
            await asyncio.sleep(0.05)
    assert await _counted(router, 'code="499",endpoint="grpc_generate_stream"')


async def _counted(router: RunningRouter, labels: str) -> bool:
    return labels in await router.metrics()


async def test_a_client_whose_connection_breaks_is_cancelled_in_the_engine(
    router: RunningRouter, leader: FakeLeader
) -> None:
    async with calling(router.grpc) as stub:
        stream = stub.GenerateStream(message_of({"prompt": "x", "max_tokens": 20_000}))
        await stream.read()
    await cancelled(leader)


async def test_the_clients_deadline_ends_the_request_everywhere(stub: Stub, leader: FakeLeader) -> None:
    request = message_of({"prompt": "x", "max_tokens": 20_000})
    for ask in (stub.Generate, partial(streamed, stub)):
        for enough_s in (0.3, 1.5, 7.5):  # to reach the leader
            leader.submits.clear()
            assert (await refused(ask(request, timeout=enough_s)))[0] == CODES.DEADLINE_EXCEEDED
            if leader.submits:
                break
        await cancelled(leader)
        leader.cancels.clear()


async def test_a_request_whose_deadline_passes_in_the_queue_never_reaches_a_group(
    router: RunningRouter, stub: Stub, leader: FakeLeader
) -> None:
    await leader.withdraw(lambda: stub.Generate(message_of({"prompt": "x", "max_tokens": 1})))
    try:
        seen = len(leader.submits)
        assert (await refused(stub.Generate(message_of({"prompt": "x"}), timeout=1.0)))[0] == CODES.DEADLINE_EXCEEDED
        async with asyncio.timeout(PATIENCE_S):  # the client knows the time by its own clock, the router by its own
            while await router.sample("octavo_router_queue_requests"):
                await asyncio.sleep(0.01)
    finally:
        leader.grant(100_000)
    await asyncio.sleep(0.2)
    assert len(leader.submits) == seen


async def test_a_client_that_stops_reading_disturbs_no_one_and_loses_nothing(
    router: RunningRouter, stub: Stub, leader: FakeLeader
) -> None:
    leader.script = replace(leader.script, interval_s=0.0)
    tokens = 30_000
    async with calling(router.grpc, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16_384)) as slow:
        merged = await router.sample("octavo_router_merged_writes_total")
        stream = slow.GenerateStream(message_of({"prompt": "x", "max_tokens": tokens}))
        first = await stream.read()
        async with asyncio.timeout(PATIENCE_S):
            while leader.under_way:
                await asyncio.sleep(0.05)
        other = await stub.Generate(message_of({"prompt": "x", "max_tokens": 20}), timeout=PATIENCE_S)
        assert other.usage.completion_tokens == 20
        assert await router.sample("octavo_router_merged_writes_total") > merged + 1_000, "what waits is one message"
        chunks = [first]
        while (chunk := await stream.read()) is not grpc.aio.EOF:
            chunks.append(chunk)
    whole = joined(chunks)
    assert whole.usage.completion_tokens == tokens == len(whole.outputs[0].token_ids)
    assert whole.outputs[0].text == TOKENIZER.decode(list(whole.outputs[0].token_ids))


async def test_a_failure_after_the_first_chunk_is_the_status_and_what_came_stands(
    router: RunningRouter, stub: Stub, leader: FakeLeader
) -> None:
    leader.fail_at = 5
    stream = stub.GenerateStream(message_of({"prompt": "x", "max_tokens": 50}))
    text, reasons = "", set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for chunk in stream:
            text += chunk.outputs[0].text
            reasons.add(chunk.outputs[0].finish_reason)
    assert refusal(caught.value) == (CODES.INTERNAL, "engine_failed", None)
    assert STORY.startswith(text) and text and reasons == {octavo_pb2.FINISH_REASON_UNSPECIFIED}
    assert await _counted(router, 'code="cut",endpoint="grpc_generate_stream"')


async def test_a_failure_before_the_first_token_is_a_status(stub: Stub, leader: FakeLeader) -> None:
    leader.fail_at = 0
    request = message_of({"prompt": "x", "max_tokens": 5})
    assert await refused(stub.Generate(request)) == (CODES.INTERNAL, "engine_failed", None)
    assert await refused(streamed(stub, request)) == (CODES.INTERNAL, "engine_failed", None)


async def test_a_full_queue_says_when_to_come_again(leader: FakeLeader, pair: tuple, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("full")
    address = f"unix:{folder}/leader.sock"
    async with (
        serving(replace(leader.script, credit=0), address),
        routing([address], "--queue-max-requests", "1", "--queue-max-wait", "3") as router,
        calling(router.grpc) as stub,
    ):
        request = message_of({"prompt": "x", "max_tokens": 2})
        waits = asyncio.ensure_future(refused(stub.Generate(request)))
        async with asyncio.timeout(PATIENCE_S):
            while not await router.sample("octavo_router_queue_requests"):
                await asyncio.sleep(0.05)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(request)
        assert refusal(caught.value) == (CODES.RESOURCE_EXHAUSTED, "queue_full", None)
        hints = trailers(caught.value)
        assert int(hints["retry-after"]) >= 1 and int(hints["grpc-retry-pushback-ms"]) >= 1000
        assert (await waits)[:2] == (CODES.UNAVAILABLE, "no_capacity")
