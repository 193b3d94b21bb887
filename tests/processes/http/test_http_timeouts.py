"""A request's own time: over in the queue, before the first token or in the middle, it ends in one error."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.router.fronts import Front, front
from support.router.jobs import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOOD = {"model": "m", "prompt": "x", "max_tokens": 2}
LONG = GOOD | {"max_tokens": 2000}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    async with front(tmp_path_factory.mktemp("timeouts"), interval_s=0.02) as made:
        yield made


@pytest.fixture
def served(pair: Front) -> Front:
    pair.leader.resume()
    pair.leader.cancels.clear()
    pair.leader.grant(100_000)
    return pair


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("field", "header"), [(1, 0), (0, 1), (100, 1), (1, 100)])
async def test_an_answer_that_takes_longer_ends_in_one_error_and_in_the_engine(
    served: Front, stream: bool, field: int, header: int
) -> None:
    """field, header: times what is enough for the first token here; 0 is none."""
    for enough_s in (0.3, 1.5, 7.5):
        headers = {"X-Request-Timeout": str(header * enough_s)} if header else {}
        begun = time.monotonic()
        body = LONG | {"stream": stream, "timeout": field * enough_s or None}
        url = f"{served.router.url}/v1/completions"
        async with served.router.session.post(url, json=body, headers=headers) as answer:
            text = await answer.text()
        assert time.monotonic() - begun > 0.8 * enough_s
        if answer.status == 200 or not stream:
            break
    if stream:
        assert answer.status == 200
        events = [json.loads(line.removeprefix("data: ")) for line in text.strip().split("\n\n")]
        assert [event["error"]["code"] for event in events if "error" in event] == ["deadline_exceeded"]
        assert "error" in events[-1] and events[0]["choices"][0]["text"] is not None
        assert {choice["finish_reason"] for event in events[:-1] for choice in event["choices"]} == {None}
    else:
        assert (answer.status, json.loads(text)["error"]["code"]) == (504, "deadline_exceeded")
        assert answer.headers["X-Should-Retry"] == "false"
    await until(lambda: served.leader.under_way == 0 and bool(served.leader.cancels))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_does_not_begin_in_time_has_a_status(served: Front, stream: bool) -> None:
    served.leader.holding = True
    status, answer = await served.router.post("/v1/completions", GOOD | {"stream": stream, "timeout": 0.3})
    assert (status, answer["error"]["code"]) == (504, "deadline_exceeded")
    await until(lambda: served.leader.under_way == 0)


async def test_a_request_that_waits_for_a_group_gets_that_cause(served: Front) -> None:
    await served.leader.withdraw(lambda: served.router.post("/v1/completions", GOOD))
    async with served.router.session.post(
        f"{served.router.url}/v1/completions", json=GOOD | {"timeout": 0.3}
    ) as answer:
        assert answer.status == 504 and int(answer.headers["Retry-After"]) >= 1
        assert "before a group had room" in (await answer.json())["error"]["message"]


async def test_an_answer_within_its_time_is_whole(served: Front) -> None:
    for path, body in (
        ("/v1/completions", GOOD),
        ("/v1/responses", {"input": "x", "max_output_tokens": 2}),
        ("/tokenize", {"prompt": "x"}),
    ):
        status, _ = await served.router.post(path, body | {"timeout": 30}, **{"X-Request-Timeout": "30"})
        assert status == 200


async def test_a_responses_stream_ends_in_one_failed_event(served: Front) -> None:
    body = {"input": "x", "max_output_tokens": 2000, "stream": True, "timeout": 0.3}
    async with served.router.session.post(f"{served.router.url}/v1/responses", json=body) as answer:
        text = await answer.text()
    assert text.count("event: response.failed") == 1
    assert text.strip().split("\n\n")[-1].startswith("event: response.failed")


@pytest.mark.parametrize("bad", [0, -1, "5", True, 1e9, [1]])
async def test_a_time_that_is_none_gets_400(served: Front, bad: object) -> None:
    status, answer = await served.router.post("/v1/completions", GOOD | {"timeout": bad})
    assert (status, answer["error"]["param"]) == (400, "timeout")


@pytest.mark.parametrize("bad", ["0", "-1", "soon", "nan", "inf", "1e9", ""])
async def test_a_header_that_is_no_time_gets_400(served: Front, bad: str) -> None:
    for path, body in (("/v1/completions", GOOD), ("/tokenize", {"prompt": "x"})):
        status, answer = await served.router.post(path, body, **{"X-Request-Timeout": bad})
        assert status == 400 and "X-Request-Timeout" in answer["error"]["message"]


async def test_a_client_may_use_an_id_again_that_it_has_just_left(served: Front) -> None:
    headers = {"X-Request-Id": "same"}
    leaving = asyncio.ensure_future(served.router.post("/v1/completions", LONG, **headers))
    await until(lambda: served.leader.under_way == 1)
    leaving.cancel()
    status, answer = await served.router.post("/v1/completions", GOOD | {"max_tokens": 5}, **headers)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 5)
    await until(lambda: served.leader.under_way == 0)
