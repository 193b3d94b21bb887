"""One timer for many deadlines."""

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Rings at the earliest moment that it was told. It may ring early: who hears it looks, and sets it again."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        # Kept beside its moment, which uvloop's handles do not know: one that is due at once is no TimerHandle there.
        self._timer: asyncio.Handle | None = None
        self._moment = math.inf

    def at(self, moment: float) -> None:
        """moment: of the loop's clock; infinite: never. A later one than is set changes nothing."""
        if self._timer is not None and self._moment <= moment:
            return
        self.off()
        if moment < math.inf:
            self._moment = moment
            self._timer = self._loop.call_at(moment, self._rung)

    def off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rung(self) -> None:
        self._timer = None
        self._ring()
