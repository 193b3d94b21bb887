"""What a rank makes of an order to sleep or to wake, and of the setting to be prepared for one."""

import logging
import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import TYPE_CHECKING

from octavo.kernels.errors import KernelError
from octavo.worker.devices.host_memory import shortage
from octavo.worker.errors import CannotSleep, CannotWake
from octavo.worker.messages.memory import MemoryState, Sleep, Wake
from octavo.worker.rank.pod_copies import PodCopies

if TYPE_CHECKING:
    from octavo.worker.runner.base import DeviceRunner

logger = logging.getLogger(__name__)


class RankMemory:
    """Of a rank whose model is loaded. short: why so many bytes of the host are too many; empty when they are not."""

    def __init__(
        self, runner: "DeviceRunner", rank: int, copies: PodCopies, short: Callable[[int], str] = shortage
    ) -> None:
        self._runner, self._rank, self._copies, self._short = runner, rank, copies, short
        self._copying = Lock()
        self._ordered = False
        copies.write(runner.copy_bytes)

    def obey(self, order: Sleep | Wake) -> MemoryState:
        """Every step that came before has returned. Raises ModelError when the model is not the one that fell
        asleep."""
        begin, falls_asleep = time.monotonic(), isinstance(order, Sleep)
        try:
            moved = self._sleep(order.keep_kv) if isinstance(order, Sleep) else self._runner.wake()
        except (CannotSleep, CannotWake) as error:
            return MemoryState(self._rank, not falls_asleep, error=str(error))
        text = "gave %.2f GB back in %.3f s" if falls_asleep else "took %.2f GB again in %.3f s"
        logger.info(text, moved / 1e9, time.monotonic() - begin)
        return MemoryState(self._rank, falls_asleep, max(0, moved))

    def prepare(self) -> Thread:
        """In a thread, while the rank serves."""
        thread = Thread(target=self._prepare, daemon=True, name="prepare-sleep")
        thread.start()
        return thread

    def _sleep(self, keep_kv: bool) -> int:
        self._ordered = True
        with self._copying:
            with self._copies.alone():  # and no copy is half made, but by ranks that have the same order
                if why := self._lacking():
                    raise CannotSleep(why)
            try:
                return self._runner.sleep(keep_kv)
            finally:
                self._copies.write(self._runner.copy_bytes)

    def _prepare(self) -> None:
        """One rank of the pod after the other: what is left of the host's memory is then known."""
        with self._copying, self._copies.alone():
            if self._ordered:  # to sleep, which makes the copy
                return
            begin = time.monotonic()
            if why := self._lacking():
                logger.warning("not prepared to sleep: %s", why)
                return
            try:
                self._runner.prepare_sleep()
            except KernelError as error:
                logger.warning("not prepared to sleep: %s", error)
            else:
                logger.info("prepared to sleep in %.2f s", time.monotonic() - begin)
            finally:
                self._copies.write(self._runner.copy_bytes)

    def _lacking(self) -> str:
        """Why the copies that the pod's ranks have yet to make are too large for the host; empty when they are not."""
        own = self._runner.copy_bytes
        self._copies.write(own)
        total = self._copies.total()
        if not own or not (why := self._short(total)):
            return ""
        text = f"the weights of a rank that sleeps stay in the host's memory: {total / (1 << 30):.1f} GiB more"
        return f"{text}{' for the ranks of this pod' if total > own else ''}, and {why}"
