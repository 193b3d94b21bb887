"""An upstream outlives whatever goes wrong in one attempt."""

import asyncio

from octavo.router.dispatch import upstream, wire
from octavo.router.dispatch.upstream import Upstream
from octavo.router.internal_errors import InternalErrors


async def test_an_unexpected_error_is_logged_and_the_next_attempt_follows(monkeypatch, caplog):
    monkeypatch.setattr(upstream, "FIRST_BACK_OFF_S", 0.01)
    attempts = 0
    twice = asyncio.Event()

    def dial(address: str):
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            twice.set()
        raise KeyError("a bug")

    errors = InternalErrors()
    kept = Upstream("unix:/x", dial, wire.hello("", "r"), listener=None, errors=errors)
    task = asyncio.create_task(kept.run(lambda _: None))
    try:
        await asyncio.wait_for(twice.wait(), 5)
    finally:
        task.cancel()
    assert "a bug" in caplog.text and errors.count >= 1
