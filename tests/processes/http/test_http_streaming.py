"""What a client of a real router sees of a good answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import openai
import pytest
import pytest_asyncio
from support.patience import PATIENCE_S
from support.router.fake_leader import FakeLeader, Script, serving
from support.router.jobs import until
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import byte_level, files, write

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKENIZER = byte_level()
STORY = "Once upon a time there was a naïve café 日本語 🌶 and ABCDEFGHIJ the end."


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text).ids)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[FakeLeader, RunningRouter]]:
    folder = tmp_path_factory.mktemp("streaming")
    address = f"unix:{folder}/leader.sock"
    script = Script(tokenizer=write(folder / "model", files(TOKENIZER)), served_name="m", context_length=2048)
    async with serving(script, address) as leader, routing([address]) as router:
        yield leader, router


@pytest.fixture
def leader(pair: tuple[FakeLeader, RunningRouter]) -> FakeLeader:
    """It tells the story, a token each 5 ms."""
    leader, _ = pair
    leader.script = replace(leader.script, ids=ids(STORY), interval_s=0.005)
    leader.submits.clear()
    leader.cancels.clear()
    return leader


@pytest.fixture
def router(pair: tuple[FakeLeader, RunningRouter], leader: FakeLeader) -> RunningRouter:
    return pair[1]


def joined(events: list[str]) -> str:
    assert events[-1] == "[DONE]"
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


async def test_the_official_client_streams_a_chat_and_its_text_equals_the_whole_answer(router: RunningRouter) -> None:
    client = openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=0)
    asked = {"model": "m", "messages": [{"role": "user", "content": "Tell me"}], "max_tokens": len(ids(STORY))}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content == STORY
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert whole.usage is not None and whole.usage.completion_tokens == len(ids(STORY))
    await client.close()


async def test_the_official_client_lists_the_model_and_completes_text(router: RunningRouter) -> None:
    client = openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=0)
    assert [model.id async for model in client.models.list()] == ["m"]
    assert (await client.models.retrieve("m")).id == "m"
    answer = await client.completions.create(model="m", prompt=["one", "two"], max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert {choice.text for choice in answer.choices} == {TOKENIZER.decode(list(ids(STORY)[:3]))}
    await client.close()


async def test_a_character_split_over_tokens_never_shows_in_halves(router: RunningRouter, leader: FakeLeader) -> None:
    pepper = ids("ď🌶")
    assert len(pepper) > 2
    leader.script = replace(leader.script, ids=pepper)
    for tokens in range(1, len(pepper) + 1):
        asked = {"model": "m", "prompt": "x", "max_tokens": tokens}
        _, whole = await router.post("/v1/completions", asked)
        events = await router.events("/v1/completions", asked)
        assert joined(events) == whole["choices"][0]["text"]
        assert "�" not in joined(events)[:-1]
    assert joined(events) == "ď🌶"


@pytest.mark.parametrize(("stop", "shown"), [("DEFGHIJ", "ABC"), ("FG", "ABCDE"), (["zzz", "BC"], "A")])
async def test_nothing_of_a_stop_string_reaches_the_client(
    router: RunningRouter, leader: FakeLeader, stop: object, shown: str
) -> None:
    leader.script = replace(leader.script, ids=ids("ABCDEFGHIJ"))
    asked = {"model": "m", "prompt": "x", "stop": stop, "max_tokens": 500}
    _, whole = await router.post("/v1/completions", asked)
    events = await router.events("/v1/completions", asked)
    assert joined(events) == whole["choices"][0]["text"] == shown
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "stop"
    async with asyncio.timeout(PATIENCE_S):
        while leader.under_way:
            await asyncio.sleep(0.01)


async def test_usage_comes_last_before_done_and_only_when_asked_for(router: RunningRouter) -> None:
    asked = {"model": "m", "prompt": "x", "max_tokens": 3}
    events = await router.events("/v1/completions", asked | {"stream_options": {"include_usage": True}})
    last = json.loads(events[-2])
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 3
    assert all(json.loads(event)["usage"] is None for event in events[:-2])
    plain = await router.events("/v1/completions", asked | {"stream_options": {"include_usage": False}})
    assert all("usage" not in json.loads(event) for event in plain[:-1])


async def test_no_max_tokens_means_the_rest_of_the_context(router: RunningRouter, leader: FakeLeader) -> None:
    leader.script = replace(leader.script, interval_s=0.0)
    for absent in ({}, {"max_tokens": None}):
        for stream in (False, True):
            body = {"model": "m", "prompt": "test it", "stream": stream} | absent
            async with router.session.post(f"{router.url}/v1/completions", json=body) as response:
                assert response.status == 200
                await response.read()
            assert leader.submits[-1].limits.max_tokens == 2048 - len(ids("test it"))


async def test_two_requests_with_one_id_are_both_answered_whole(router: RunningRouter) -> None:
    asked = {"model": "m", "prompt": "x", "max_tokens": 10}
    answers = await asyncio.gather(
        *(router.post("/v1/completions", asked, **{"X-Request-Id": "same"}) for _ in range(2))
    )
    assert answers[0][1]["id"] != answers[1][1]["id"]
    assert all(body["usage"]["completion_tokens"] == 10 for _, body in answers)


async def test_the_clients_request_id_is_echoed_streaming_and_not(router: RunningRouter) -> None:
    for stream in (False, True):
        body = {"model": "m", "prompt": "x", "max_tokens": 1, "stream": stream}
        headers = {"X-Request-Id": "mine-1"}
        async with router.session.post(f"{router.url}/v1/completions", json=body, headers=headers) as response:
            assert response.headers["X-Request-Id"] == "mine-1"
    for path in ("/v1/models", "/v1/models/m", "/v1/models/nope", "/version", "/openapi.json", "/no/such/path"):
        async with router.session.get(router.url + path, headers=headers) as response:
            assert response.headers["X-Request-Id"] == "mine-1"
        async with router.session.get(router.url + path, headers={"X-Request-Id": "x" * 200}) as response:
            assert 0 < len(response.headers["X-Request-Id"]) <= 128


async def test_an_http_1_0_client_gets_its_stream_unchunked(router: RunningRouter) -> None:
    host, port = router.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"model":"m","prompt":"x","max_tokens":2,"stream":true}'
    writer.write(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    assert b"Transfer-Encoding" not in answer
    assert answer.partition(b"\r\n\r\n")[2].startswith(b"data: {") and answer.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_is_cancelled_in_the_engine(
    router: RunningRouter, leader: FakeLeader, stream: bool
) -> None:
    body = {"model": "m", "prompt": "x", "max_tokens": 2000, "stream": stream}
    asking = asyncio.ensure_future(_read(router, body))
    await until(lambda: leader.under_way == 1)
    asking.cancel()
    await until(lambda: bool(leader.cancels))
    assert leader.under_way == 0
    async with asyncio.timeout(PATIENCE_S):
        while 'code="499"' not in await router.metrics():
            await asyncio.sleep(0.05)


async def _read(router: RunningRouter, body: dict) -> bytes:
    async with router.session.post(f"{router.url}/v1/completions", json=body) as response:
        return await response.read()


async def test_a_client_that_does_not_read_disturbs_no_one_and_loses_nothing(
    router: RunningRouter, leader: FakeLeader
) -> None:
    leader.script = replace(leader.script, interval_s=0.0)
    host, port = router.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    body = b'{"model":"m","prompt":"x","max_tokens":2000,"stream":true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    await writer.drain()
    await until(lambda: len(leader.submits) == 1 and leader.under_way == 0)
    status, other = await router.post("/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 20})
    assert (status, other["usage"]["completion_tokens"]) == (200, 20)
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    assert answer.count(b"[DONE]") == 1


async def test_a_client_that_asks_before_it_sends_gets_100_continue(router: RunningRouter) -> None:
    host, port = router.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"model":"m","prompt":"x","max_tokens":2}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body))
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await asyncio.wait_for(reader.readline(), PATIENCE_S)).split()[1] == b"200"
    writer.close()
