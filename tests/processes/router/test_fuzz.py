"""No request, however bad, is answered with a fault of the server's, and HTTP and gRPC judge it alike."""

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import aiohttp
import grpc
import pytest
import pytest_asyncio
from support.router import bad_bodies
from support.router.fronts import Front, front
from support.router.grpc_calls import Refusal, message_of, refusal

from octavo.proto.v1 import octavo_pb2
from octavo.router.frontend.grpc.grpc_errors import STATUSES

pytestmark = pytest.mark.asyncio(loop_scope="module")
T = TypeVar("T")
CODES = grpc.StatusCode
CLIENTS_FAULT = (CODES.INVALID_ARGUMENT, CODES.NOT_FOUND, CODES.UNIMPLEMENTED)
AT_ONCE = 48


@dataclass(frozen=True, slots=True)
class Ends:
    """Connections that are kept, over both protocols."""

    front: Front
    session: aiohttp.ClientSession
    channel: grpc.aio.Channel

    async def http(self, path: str, body: bytes) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        async with self.session.post(self.front.router.url + path, data=body, headers=headers) as answer:
            said = await answer.read()
            return answer.status, json.loads(said) if answer.content_type == "application/json" else said

    async def grpc(self, method: str, message: bytes) -> Refusal | bytes:
        path = f"/octavo.v1.Inference/{method}"
        try:
            if method == "GenerateStream":
                return b"".join([piece async for piece in self.channel.unary_stream(path)(message)])
            return bytes(await self.channel.unary_unary(path)(message))
        except grpc.aio.AioRpcError as error:
            return refusal(error)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ends(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ends]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with (
        front(folder, context_length=bad_bodies.CONTEXT) as made,
        aiohttp.ClientSession(connector=connector) as session,
        grpc.aio.insecure_channel(made.router.grpc) as channel,
    ):
        yield Ends(made, session, channel)


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def unharmed(ends: Ends) -> AsyncIterator[None]:
    """Whatever came, no process of the router has ended, and good requests are served."""
    router = ends.front.router
    yield
    assert await router.status("/readyz") == 200
    for name in ("process_restarts", "helpers_died", "helpers_killed"):
        assert await router.sample(f"octavo_router_{name}_total") == 0, name
    assert router.process.poll() is None


async def for_all(cases: Iterator[T], judge: Callable[[T], Awaitable[None]]) -> None:
    """AT_ONCE of them at any time."""

    async def worker() -> None:
        for case in cases:
            await judge(case)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())


def as_grpc_has_it(status: int, answer: Any) -> Refusal | None:
    """None for an answer."""
    return None if status == 200 else (STATUSES[status], answer["error"]["code"], answer["error"]["param"])


async def test_5000_bad_requests_are_refused_alike_over_both_protocols(ends: Ends) -> None:
    verdicts: Counter[Refusal] = Counter()

    async def judge(body: bad_bodies.Json) -> None:
        path = "/v1/chat/completions" if body.get("messages") else "/v1/completions"
        (status, answer), over_grpc = await asyncio.gather(
            ends.http(path, json.dumps(body).encode()), ends.grpc("Generate", message_of(body).SerializeToString())
        )
        verdict = as_grpc_has_it(status, answer)
        assert verdict is not None and 400 <= status < 500, (body, answer)
        assert over_grpc == verdict, body
        verdicts[verdict] += 1

    draw = Random(1)
    await for_all((bad_bodies.both(draw) for _ in range(5_000)), judge)
    named = {field for _, _, field in verdicts}
    assert named >= {*bad_bodies.BAD, "prompt", "messages[0].role"}, "every field was at fault at least once"
    assert {code for _, code, _ in verdicts} >= {"context_length_exceeded", "model_not_found", "invalid_grammar"}


async def test_good_requests_of_the_same_making_are_answered_alike(ends: Ends) -> None:
    async def judge(body: bad_bodies.Json) -> None:
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        status, answer = await ends.http(path, json.dumps(body).encode())
        whole = await ends.grpc("Generate", message_of(body).SerializeToString())
        assert status == 200 and isinstance(whole, bytes), (body, answer, whole)
        (choice,) = answer["choices"]
        said = choice["message"]["content"] if "messages" in body else choice["text"]
        assert octavo_pb2.GenerateResponse.FromString(whole).outputs[0].text == said

    draw = Random(2)
    await for_all((bad_bodies.fine(draw) for _ in range(300)), judge)


async def test_2500_bodies_of_any_json_get_no_5xx(ends: Ends) -> None:
    statuses: Counter[int] = Counter()
    async with ends.session.get(ends.front.router.url + "/openapi.json") as document:
        posts = [path["post"] for path in (await document.json())["paths"].values() if "post" in path]
    schemas = [post["requestBody"]["content"]["application/json"]["schema"] for post in posts]
    fields = sorted({name for schema in schemas for name in schema["properties"]})
    assert {"logit_bias", "tools", "response_format", "structured_outputs"} <= set(fields)

    async def judge(case: tuple[str, bytes]) -> None:
        status, answer = await ends.http(*case)
        assert status < 500, (case, answer)
        if status >= 400:
            assert answer["error"]["message"] and answer["error"]["type"], (case, answer)
        statuses[status] += 1

    draw = Random(3)
    cases = (bad_bodies.any_json(draw, fields) for _ in range(2_500))
    await for_all(cases, judge)
    assert statuses[400] > 1_000 and statuses[200] > 20


async def test_1500_bodies_with_changed_bytes_get_no_5xx(ends: Ends) -> None:
    statuses: Counter[int] = Counter()

    async def judge(case: tuple[str, bytes]) -> None:
        status, answer = await ends.http(*case)
        assert status < 500, (case, answer)
        statuses[status] += 1

    draw = Random(4)
    await for_all((bad_bodies.any_bytes(draw) for _ in range(1_500)), judge)
    assert statuses[400] > 500


METHODS = ("Generate", "GenerateStream", "Tokenize", "Detokenize", "GetModel", "ListModels")


async def test_1500_messages_with_changed_bytes_are_the_clients_fault_or_answered(ends: Ends) -> None:
    codes: Counter[object] = Counter()

    async def judge(case: tuple[str, bytes]) -> None:
        method, message = case
        found = await ends.grpc(method, message)
        code = found[0] if isinstance(found, tuple) else None
        assert code is None or code in CLIENTS_FAULT, (case, found)
        codes[code] += 1

    draw = Random(5)
    good = [message_of(bad_bodies.fine(draw)).SerializeToString() for _ in range(50)]
    good.append(octavo_pb2.DetokenizeRequest(token_ids=[1, 2, 300]).SerializeToString())
    cases = ((draw.choice(METHODS), bad_bodies.mutated(draw, draw.choice(good))) for _ in range(1_500))
    await for_all(cases, judge)
    assert codes[CODES.INVALID_ARGUMENT] > 500 and codes[None] > 10


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_numbers_that_json_lacks_are_refused_over_grpc_by_name(ends: Ends, value: float) -> None:
    names = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
    for name in names:
        found = await ends.grpc("Generate", message_of(bad_bodies.TEXT | {name: value}).SerializeToString())
        assert found == (CODES.INVALID_ARGUMENT, "invalid_value", name)
