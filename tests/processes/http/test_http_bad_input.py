"""Bad input gets a clear 4xx that names the field, and an open stream beside it goes on undisturbed."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import pytest_asyncio
from support.patience import PATIENCE_S, calm_s
from support.router.fake_leader import FakeLeader, Script, serving
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import LOOP, SWELL, byte_level, files, write

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKENIZER = byte_level()
GOOD = {"model": "m", "prompt": "x", "max_tokens": 2}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
CONTEXT = 2048


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[FakeLeader, RunningRouter]]:
    folder = tmp_path_factory.mktemp("bad-input")
    address = f"unix:{folder}/leader.sock"
    model = write(folder / "model", files(TOKENIZER))
    script = Script(tokenizer=model, served_name="m", context_length=CONTEXT, interval_s=0.005, ids=(300, 301, 302))
    async with serving(script, address) as leader, routing([address]) as router:
        yield leader, router


@pytest.fixture
def leader(pair: tuple[FakeLeader, RunningRouter]) -> FakeLeader:
    pair[0].fail_at = None
    return pair[0]


@pytest.fixture
def router(pair: tuple[FakeLeader, RunningRouter], leader: FakeLeader) -> RunningRouter:
    return pair[1]


@pytest_asyncio.fixture(loop_scope="module")
async def beside(router: RunningRouter) -> AsyncIterator[None]:
    """A stream that is open all the while, and must end as if nothing had happened."""
    tokens = 200
    asked = GOOD | {"max_tokens": tokens, "stream_options": {"include_usage": True}}
    stream = asyncio.ensure_future(router.events("/v1/completions", asked))
    await asyncio.sleep(0.1)
    yield
    events = await asyncio.wait_for(stream, PATIENCE_S)
    assert events[-1] == "[DONE]" and json.loads(events[-2])["usage"]["completion_tokens"] == tokens
    assert await router.status("/readyz") == 200


BODIES = [
    (b"", "invalid_json"),
    (b"{", "invalid_json"),
    (b"[1,2]", "invalid_value"),
    (b'"text"', "invalid_value"),
    (b"\xff\xfe{}", "invalid_json"),
    (b'{"prompt": "\\ud800"}', "invalid_json"),
    (b'{"prompt": NaN}', "invalid_json"),
    (b"[" * 100_000, "invalid_json"),
]


async def test_bodies_that_are_not_a_json_object_get_400(router: RunningRouter, beside: None) -> None:
    for path in ("/v1/completions", "/v1/chat/completions"):
        for body, code in BODIES:
            status, answer = await router.raw(path, body)
            assert (status, answer["error"]["code"]) == (400, code), body[:30]


FIELDS = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 10**30}, None),
    ({"max_tokens": CONTEXT}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"stop": [""]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"logprobs": "5"}, "logprobs"),
    ({"logit_bias": {"999999": -100, "5": 3}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"allowed_token_ids": [999999]}, "allowed_token_ids"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"chat_template": LOOP}, "chat_template"),
    ({"chat_template_kwargs": {"chat_template": LOOP}}, "chat_template_kwargs"),
    ({"guided_json": 5}, "guided_json"),
    ({"lora_path": "x"}, "lora_path"),
]


async def test_a_bad_field_gets_400_with_its_name_streaming_and_not(router: RunningRouter, beside: None) -> None:
    for path, good in (("/v1/completions", GOOD), ("/v1/chat/completions", CHAT)):
        for fields, name in FIELDS:
            for stream in ({}, {"stream": True}):
                if "stream_options" in fields and stream:
                    continue
                status, answer = await router.post(path, good | stream | fields)
                assert status == 400, (path, fields, answer)
                param = answer["error"]["param"]  # of what is inside a field, the whole path
                assert name is None or re.split(r"[.\[]", param)[0] == name, (path, fields, answer)


PROMPTS = ["", [], [[]], [""], ["", "x"], [1.5], [True], [-1], [999_999], [[1], "x", None], {"a": 1}, 5, None, [1, "x"]]


async def test_prompts_without_tokens_or_of_the_wrong_type_get_400(router: RunningRouter, beside: None) -> None:
    for prompt in PROMPTS:
        status, answer = await router.post("/v1/completions", GOOD | {"prompt": prompt})
        assert status == 400 and answer["error"]["param"].startswith("prompt"), (prompt, answer)


MESSAGES = [
    None,
    [],
    "hi",
    [5],
    [{"role": "user"}],
    [{"role": "boss", "content": "x"}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "content": []}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    [{"role": "user", "content": "x", "weight": 1}],
]


async def test_messages_of_the_wrong_shape_get_400_that_names_them(router: RunningRouter, beside: None) -> None:
    for messages in MESSAGES:
        status, answer = await router.post("/v1/chat/completions", CHAT | {"messages": messages})
        assert status == 400 and answer["error"]["param"].startswith("messages"), (messages, answer)
    status, _ = await router.post("/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": ""}]})
    assert status == 200


async def test_over_long_prompts_get_a_clear_4xx(router: RunningRouter, beside: None) -> None:
    status, answer = await router.post("/v1/completions", GOOD | {"prompt": [300] * 1_200_000})
    assert (status, answer["error"]["code"]) == (400, "too_many_tokens")
    status, answer = await router.post("/v1/completions", GOOD | {"prompt": [300] * 900_000})
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    status, answer = await router.post("/v1/completions", GOOD | {"prompt": "word " * 1_200_000})
    assert status == 400 and answer["error"]["param"] == "prompt"
    status, answer = await router.post("/v1/completions", GOOD | {"prompt": "x" * (17 << 20)})
    assert (status, answer["error"]["code"]) == (413, "body_too_large")


async def test_unknown_models_and_paths_get_404_and_wrong_methods_405(router: RunningRouter, beside: None) -> None:
    for path, good in (("/v1/completions", GOOD), ("/v1/chat/completions", CHAT)):
        status, answer = await router.post(path, good | {"model": "nope"})
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert await router.status(path) == 405
    for path in ("/", "/v1", "//v1/models", "/V1/models", "/v1/models/nope", "/metrics"):
        assert await router.status(path) == 404, path


async def test_client_text_never_becomes_a_metric_label(router: RunningRouter) -> None:
    await router.post("/v1/completions", GOOD | {"model": "nope"})
    await router.status("/v1/x/first")
    before = len((await router.metrics()).splitlines())
    successes = await router.sample("octavo_router_request_seconds_count")
    for start in range(0, 300, 50):
        numbers = range(start, start + 50)
        await asyncio.gather(*(router.post("/v1/completions", GOOD | {"model": f"nope-{i}"}) for i in numbers))
        await asyncio.gather(*(router.status(f"/v1/x/{i}") for i in numbers))
    assert len((await router.metrics()).splitlines()) <= before + 10
    assert await router.sample("octavo_router_request_seconds_count") == successes


async def test_a_failure_after_the_first_token_is_one_error_event_and_the_end(
    router: RunningRouter, leader: FakeLeader
) -> None:
    leader.fail_at = 5
    events = await router.events("/v1/completions", GOOD | {"max_tokens": 50})
    errors = [json.loads(event) for event in events if event.startswith('{"error"')]
    assert len(errors) == 1 and "error" in json.loads(events[-1])
    reasons = [choice["finish_reason"] for event in events[:-1] for choice in json.loads(event)["choices"]]
    assert set(reasons) == {None}
    assert 'code="cut",endpoint="completions"' in await router.metrics()


async def test_a_failure_before_the_first_token_has_a_status(router: RunningRouter, leader: FakeLeader) -> None:
    leader.fail_at = 0
    for stream in (False, True):
        status, answer = await router.post("/v1/completions", GOOD | {"stream": stream})
        assert status == 500 and answer["error"]["code"] == "engine_failed"


async def test_a_template_that_loops_fails_only_its_own_request(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("loop")
    address = f"unix:{folder}/leader.sock"
    model = write(folder / "model", files(TOKENIZER, LOOP))
    script = Script(tokenizer=model, served_name="m", context_length=CONTEXT, interval_s=0.02, ids=(300, 301, 302))
    async with serving(script, address), routing([address]) as router:
        stream = asyncio.ensure_future(_gaps(router, GOOD | {"max_tokens": 200, "stream": True}))
        await asyncio.sleep(0.3)
        answers = await asyncio.gather(*(router.post("/v1/chat/completions", CHAT) for _ in range(3)))
        assert {status for status, _ in answers} == {400}
        assert {answer["error"]["code"] for _, answer in answers} == {"too_slow_to_tokenise"}
        status, _ = await router.post("/v1/completions", GOOD)
        assert status == 200
        assert max(await asyncio.wait_for(stream, PATIENCE_S)) < 1.5
        assert await router.sample("octavo_router_helpers_killed_total") == 3


async def test_a_template_that_swells_fails_only_its_own_request(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("swell")
    address = f"unix:{folder}/leader.sock"
    model = write(folder / "model", files(TOKENIZER, SWELL))
    script = Script(tokenizer=model, served_name="m", context_length=CONTEXT)
    async with serving(script, address), routing([address]) as router:
        late = 0
        for _ in range(3):
            status, answer = await router.post("/v1/chat/completions", CHAT)
            assert status == 400
            if answer["error"]["code"] == "too_slow_to_tokenise":  # a busy machine does not get so far in 2 s
                late += 1
            else:
                assert answer["error"]["code"] == "chat_template_failed"
                assert "256 MiB" in answer["error"]["message"]
        assert (await router.post("/v1/completions", GOOD))[0] == 200
        assert await router.sample("octavo_router_helpers_killed_total") == late
        assert await router.sample("octavo_router_helpers_died_total") == 0


async def _gaps(router: RunningRouter, body: dict) -> list[float]:
    """Calm seconds between the pieces of a stream."""
    times = [calm_s()]
    async with router.session.post(f"{router.url}/v1/completions", json=body) as response:
        async for _ in response.content.iter_any():
            times.append(calm_s())
    return [after - before for before, after in pairwise(times[1:])]
