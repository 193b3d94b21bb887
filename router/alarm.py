"""One timer for many deadlines."""

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Rings at the earliest moment that it was told. It may ring early: who hears it looks, and sets it again."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def at(self, moment: float) -> None:
        """moment: of the loop's clock; infinite: never. A later one than is set changes nothing."""
        if self._timer is not None:
            if self._timer.when() <= moment:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._rung) if moment < math.inf else None

    def off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _rung(self) -> None:
        self._timer = None
        self._ring()
