"""asyncio.run for a benchmark: SIGTERM cancels it, as Ctrl-C does, so that what it began is ended in order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Its result. Raises KeyboardInterrupt on SIGINT, and SystemExit with 143 on SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    terminated = False

    async def guarded() -> T:
        task = asyncio.current_task()
        assert task is not None

        def end() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
        return await work

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if terminated:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
