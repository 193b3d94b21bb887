"""One timer for many deadlines."""

import asyncio
import math
from collections.abc import Callable


class DeadlineTimer:
    """Calls back at the earliest deadline that was set. It may be early: the callback checks the time and sets it
    again."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        # The deadline is kept here because uvloop's handle for an immediate deadline is no TimerHandle and has no time.
        self._timer: asyncio.Handle | None = None
        self._deadline = math.inf

    def set(self, deadline: float) -> None:
        """deadline: seconds of the loop's clock; inf: never. A later deadline than the one that is set changes
        nothing."""
        if self._timer is not None and self._deadline <= deadline:
            return
        self.cancel()
        if deadline < math.inf:
            self._deadline = deadline
            self._timer = self._loop.call_at(deadline, self._expired)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        self._timer = None
        self._callback()
