"""What one client may send is bounded, over a real socket, and a stream beside it goes on undisturbed."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from support.patience import PATIENCE_S
from support.router.fronts import Front, front
from support.router.wire_http import RawAnswer, get, post, raw, read

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOOD = {"model": "m", "prompt": "x", "max_tokens": 2}
MIB = 1 << 20
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    async with front(tmp_path_factory.mktemp("limits"), interval_s=0.005) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def beside(served: Front) -> AsyncIterator[None]:
    """A stream that is open all the while, and must end as if nothing had happened."""
    tokens = 200
    asked = GOOD | {"max_tokens": tokens, "stream_options": {"include_usage": True}}
    stream = asyncio.ensure_future(served.router.events("/v1/completions", asked))
    await asyncio.sleep(0.1)
    yield
    events = await asyncio.wait_for(stream, PATIENCE_S)
    assert events[-1] == "[DONE]" and json.loads(events[-2])["usage"]["completion_tokens"] == tokens
    assert await served.router.status("/readyz") == 200


def code(answer: RawAnswer) -> tuple[int, str]:
    assert answer.headers["content-type"].startswith("application/json"), answer
    return answer.status, json.loads(answer.body)["error"]["code"]


async def test_a_body_over_8_mib_gets_413_before_it_is_sent(served: Front, beside: None) -> None:
    for path in PATHS:
        announced = get(path, f"Content-Length: {8 * MIB + 1}", method="POST")
        assert code(await raw(served.router.url, announced)) == (413, "body_too_large"), path


async def test_a_body_without_a_length_is_cut_at_8_mib(served: Front, beside: None) -> None:
    chunk = b"%x\r\n%b\r\n" % (MIB, b"x" * MIB)
    endless = get("/v1/completions", "Transfer-Encoding: chunked", method="POST") + chunk * 9
    assert code(await raw(served.router.url, endless)) == (413, "body_too_large")


async def test_a_body_of_just_8_mib_is_read(served: Front, beside: None) -> None:
    body = json.dumps({"tokens": [1]}).encode().ljust(8 * MIB)
    assert (await raw(served.router.url, post("/detokenize", body))).status == 200


async def test_a_compressed_body_gets_415_and_is_never_unpacked(served: Front, beside: None) -> None:
    bomb = gzip.compress(b"x" * (64 * MIB))
    for encoding in ("gzip", "deflate", "br", "zstd", "GZIP"):
        answer = await raw(served.router.url, post("/v1/completions", bomb, f"Content-Encoding: {encoding}"))
        assert code(answer) == (415, "unsupported_encoding")
    good = json.dumps(GOOD).encode()
    assert (await raw(served.router.url, post("/v1/completions", good, "Content-Encoding: identity"))).status == 200


async def test_a_body_that_is_not_framed_as_http_has_it_gets_400(served: Front, beside: None) -> None:
    for bad in (b"zz\r\nabc\r\n0\r\n\r\n", b"5\r\nabc\r\n0\r\n\r\n"):
        sent = get("/v1/completions", "Transfer-Encoding: chunked", method="POST") + bad
        assert (await raw(served.router.url, sent)).status == 400


async def test_a_body_that_ends_early_disturbs_no_other_request(served: Front, beside: None) -> None:
    host, port = served.router.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(get("/v1/completions", "Content-Length: 100", method="POST") + b"{")
    await writer.drain()
    writer.close()
    assert (await raw(served.router.url, get("/livez"))).status == 200


async def test_too_many_or_too_long_headers_get_431(served: Front, beside: None) -> None:
    many = [f"X-{index}: a" for index in range(200)]
    for sent in (
        get("/livez", *many),
        get("/livez", "X-Long: " + "a" * 20_000),
        get("/livez", "X-" + "a" * 20_000 + ": a"),
        get("/livez?" + "a" * 20_000),
        get("/livez", *(f"X-{index}: {'a' * 8000}" for index in range(150))),
    ):
        assert code(await raw(served.router.url, sent)) == (431, "headers_too_large")
    assert (await raw(served.router.url, get("/livez", *many[:80]))).status == 200
    assert 'code="431",endpoint="other"' in await served.router.metrics()


async def test_what_is_not_http_gets_400_in_openais_form(served: Front, beside: None) -> None:
    for sent in (b"nonsense\r\n\r\n", b"GET /livez HTTP/9.9\r\nHost: x\r\n\r\n", b"GET /livez HTTP/1.1\r\n\r\n"):
        assert code(await raw(served.router.url, sent)) == (400, "bad_request"), sent
    answer = await raw(served.router.url, b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1")
    assert answer.status in (0, 400)


TARGETS = [
    b"OPTIONS * HTTP/1.1",
    b"CONNECT octavo:80 HTTP/1.1",
    b"GET http://octavo/v1/nothing HTTP/1.1",
    b"GET //octavo/livez HTTP/1.1",
    b"GET /v1/models/%zz HTTP/1.1",
    b"GET /v1/models/%ff%fe HTTP/1.1",
    b"GET /v1/models/\xff\xfe HTTP/1.1",
    b"GET /v1/models/a%00b HTTP/1.1",
    b"GET /v1/models/%0d%0aX-Evil:%201 HTTP/1.1",
    b"GET /nothing?%zz=%ff#x HTTP/1.1",
    b"GET ?x HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"POST /v1/models HTTP/1.1\r\nContent-Length: -5",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6",
    b"GET /nothing HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade",
]


@pytest.mark.parametrize("target", TARGETS)
async def test_odd_targets_and_framings_get_4xx_in_openais_form(served: Front, target: bytes) -> None:
    answer = await raw(served.router.url, target + b"\r\nHost: x\r\n\r\n")
    assert 400 <= answer.status < 500, answer
    assert json.loads(answer.body)["error"]["code"] and "x-evil" not in answer.headers


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


async def test_json_that_nests_too_deep_gets_400(served: Front, beside: None) -> None:
    for path in PATHS:
        for depth in (64, 70, 900):
            status, answer = await served.router.post(path, {"foo": nested(depth)})
            assert (status, answer["error"]["code"]) == (400, "json_too_deep"), (path, depth)
        for depth in (5_000, 100_000):
            body = b'{"foo": ' + b"[" * depth + b"]" * depth + b"}"
            assert (await served.router.raw(path, body))[0] == 400
    status, _ = await served.router.post("/v1/completions", GOOD | {"foo": nested(63), "bar": [[1]] * 100})
    assert status == 200


async def test_too_many_ids_messages_prompts_and_stops_get_400(served: Front, beside: None) -> None:
    many = [{"role": "user", "content": "x"}] * 10_001
    for path, body, field in (
        ("/v1/completions", GOOD | {"prompt": [300] * 1_000_001}, "prompt"),
        ("/v1/completions", GOOD | {"prompt": [[300] * 500_001] * 2}, "prompt"),
        ("/v1/completions", GOOD | {"prompt": ["x"] * 257}, "prompt"),
        ("/v1/completions", GOOD | {"stop": ["x"] * 17}, "stop"),
        ("/v1/chat/completions", {"messages": many}, "messages"),
        ("/v1/responses", {"input": many}, "input"),
        ("/tokenize", {"messages": many}, "messages"),
    ):
        status, answer = await served.router.post(path, body)
        assert (status, answer["error"]["param"]) == (400, field), answer


async def test_one_connection_may_send_many_requests_ahead_and_all_are_answered(served: Front, beside: None) -> None:
    host, port = served.router.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(post("/v1/completions", json.dumps(GOOD).encode()) * 40)
    async with asyncio.timeout(PATIENCE_S):
        assert [(await read(reader)).status for _ in range(40)] == [200] * 40
    writer.close()


async def test_connections_beyond_the_bound_are_refused_and_all_within_are_served(tmp_path: Path) -> None:
    async with front(tmp_path, "--max-connections", "6") as served:
        host, port = served.router.url.removeprefix("http://").split(":")
        await served.router.session.close()  # it keeps connections
        held = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
        for reader, writer in held:
            writer.write(get("/livez"))
            assert (await read(reader)).status == 200
        body = json.dumps(GOOD | {"prompt": "x" * 100_000}).encode()
        for sent in (b"", get("/livez"), post("/v1/completions", body)):
            answer = await raw(served.router.url, sent)
            assert code(answer) == (503, "too_many_connections")
            assert answer.headers["connection"] == "close" and answer.headers["retry-after"] == "1"
        for reader, writer in held:
            writer.write(post("/v1/completions", json.dumps(GOOD).encode()))
            assert (await read(reader)).status == 200
        held.pop()[1].close()
        async with asyncio.timeout(PATIENCE_S):
            while (await raw(served.router.url, get("/livez", "Connection: close"))).status != 200:
                await asyncio.sleep(0.05)
        async with aiohttp.ClientSession() as session, session.get(served.router.metrics_url) as page:
            metrics = await page.text()
        assert "octavo_router_connections 5.0" in metrics or "octavo_router_connections 6.0" in metrics
        assert 'octavo_router_requests_total{code="503",endpoint="other"}' in metrics
        for _, writer in held:
            writer.close()


async def test_slow_senders_take_nothing_from_others(tmp_path: Path) -> None:
    async with front(tmp_path) as served:
        host, port = served.router.url.removeprefix("http://").split(":")
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        for index, (_, writer) in enumerate(slow):
            part = get("/v1/completions", f"Content-Length: {8 * MIB}", method="POST")
            writer.write(part + b"{" * 1000 if index % 2 else part[:20])
        for _ in range(20):
            status, _ = await asyncio.wait_for(served.router.post("/v1/completions", GOOD), PATIENCE_S)
            assert status == 200
        for _, writer in slow:
            writer.close()
