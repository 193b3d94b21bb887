"""A request is refused as too large or slow only when it was: a helper that others stopped is no fault of the
request."""

import asyncio
import signal
from typing import Any

import pytest
from support.patience import PATIENCE_S
from support.router.helpers import REFUSAL, ScriptedHelper, ScriptedHelpers
from support.router.jobs import until

from octavo.router.jobs.generation import Model, RequestError
from octavo.router.tokenizer_pool import pool as pools
from octavo.router.tokenizer_pool.helper import OUT_OF_MEMORY
from octavo.router.tokenizer_pool.helper_process import ProcessUsage
from octavo.router.tokenizer_pool.pool import HelperPool

MODEL = Model("digest", {})
GOOD: Any = (REFUSAL, b"")  # an answer: what the client then gets is this refusal
STOPPED = ProcessUsage("T", 1.0)
STARVED = ProcessUsage("R", 0.0)
WORKED = ProcessUsage("R", 1.0)
KILLED, ABORTED, SEGFAULT = -signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "BACKOFF_S", (0.01, 0.01))
    monkeypatch.setattr(pools, "LIMIT_S", 0.05)


@pytest.mark.parametrize(
    ("answers", "status", "code", "calls"),
    [
        ([KILLED, GOOD], 400, "c", 2),
        ([STOPPED, GOOD], 400, "c", 2),
        ([STARVED, GOOD], 400, "c", 2),
        ([ABORTED, GOOD], 400, "c", 2),
        ([KILLED, KILLED], 503, "tokeniser_lost", 2),
        ([STOPPED, STOPPED], 503, "tokeniser_lost", 2),
        ([KILLED, STARVED], 503, "tokeniser_lost", 2),
        ([WORKED, GOOD], 400, "too_slow_to_tokenise", 1),
        ([KILLED, WORKED], 400, "too_slow_to_tokenise", 2),
        ([ABORTED, ABORTED], 400, "too_large", 2),
        ([OUT_OF_MEMORY, OUT_OF_MEMORY], 400, "too_large", 2),
        ([SEGFAULT, SEGFAULT], 500, "internal_error", 2),
    ],
)
async def test_what_a_lost_helper_means_for_its_request(
    monkeypatch: pytest.MonkeyPatch, answers: list[Any], status: int, code: str, calls: int
) -> None:
    helpers = ScriptedHelpers([*answers, GOOD])
    monkeypatch.setattr(pools, "HelperProcess", helpers.made)
    pool = HelperPool(MODEL, 1)
    with pytest.raises(RequestError) as caught:
        await asyncio.wait_for(pool.prepare("completion", b'{"prompt": "x"}', 16), 5)
    assert (caught.value.status, caught.value.code) == (status, code)
    assert len(helpers.answers) == max(1, len(answers) + 1 - calls)
    assert (caught.value.retry_after is not None) == (status == 503)
    with pytest.raises(RequestError, match="no"):  # the next request is served
        await asyncio.wait_for(pool.prepare("completion", b"{}", 16), 5)
    await pool.close()


@pytest.mark.parametrize("usage", [WORKED, STOPPED, STARVED])
async def test_the_late_answer_of_a_request_never_becomes_that_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch, usage: ProcessUsage
) -> None:
    """The answer would hold another client's prompt."""
    helpers = ScriptedHelpers([usage, GOOD])
    monkeypatch.setattr(pools, "HelperProcess", helpers.made)
    pool = HelperPool(MODEL, 1)
    asked = [asyncio.ensure_future(pool.prepare("completion", b"{}", 16)) for _ in range(3)]
    errors = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), PATIENCE_S)
    codes = [error.code for error in errors if isinstance(error, RequestError)]
    assert codes == (["too_slow_to_tokenise"] if usage is WORKED else ["c"]) + ["c"] * 2
    assert len(helpers.processes) == 2 and helpers.processes[0].killed
    await pool.close()


async def test_a_helper_that_ends_while_it_has_nothing_to_do_is_replaced_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helpers = ScriptedHelpers([GOOD])
    monkeypatch.setattr(pools, "HelperProcess", helpers.made)
    pool = HelperPool(MODEL, 1)
    await until(lambda: helpers.started == 1)
    helpers.processes[0].end(KILLED)
    await until(lambda: helpers.started == 2)
    assert pool.counts.died == 1
    await pool.close()


async def test_a_request_that_waits_when_the_pool_closes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers = ScriptedHelpers([STOPPED])
    monkeypatch.setattr(pools, "HelperProcess", helpers.made)
    monkeypatch.setattr(pools, "LIMIT_S", 60.0)
    pool = HelperPool(MODEL, 1)
    asked = [asyncio.ensure_future(pool.prepare("completion", b"{}", 16)) for _ in range(3)]
    await asyncio.sleep(0.01)
    await pool.close()
    errors = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)
    assert [error.code for error in errors if isinstance(error, RequestError)] == ["draining"] * 3


async def test_the_other_helpers_start_when_the_first_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers, has_loaded = ScriptedHelpers([GOOD]), asyncio.Event()

    async def load(helper: ScriptedHelper, _: bytes) -> None:
        helpers.started += 1
        await has_loaded.wait()

    monkeypatch.setattr(pools, "HelperProcess", helpers.made)
    monkeypatch.setattr(ScriptedHelper, "start", load)
    pool = HelperPool(MODEL, 3)
    for _ in range(5):
        await asyncio.sleep(0)
    assert helpers.started == 1 and not pool.warm.is_set()
    has_loaded.set()
    await until(lambda: helpers.started == 3)
    await pool.close()
