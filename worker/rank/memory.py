"""What a rank makes of an order to sleep or to wake, and of the setting to be prepared for one."""

import logging
import time
from threading import Thread
from typing import TYPE_CHECKING

from octavo.kernels.errors import KernelError
from octavo.worker.errors import CannotSleep, CannotWake
from octavo.worker.messages.memory import MemoryState, Sleep, Wake

if TYPE_CHECKING:
    from octavo.worker.runner.base import DeviceRunner

logger = logging.getLogger(__name__)


def obey(order: Sleep | Wake, runner: "DeviceRunner", rank: int) -> MemoryState:
    """Every step that came before has returned. Raises ModelError when the model is not the one that fell asleep."""
    begin, falls_asleep = time.monotonic(), isinstance(order, Sleep)
    try:
        moved = runner.sleep(order.keep_kv) if isinstance(order, Sleep) else runner.wake()
    except (CannotSleep, CannotWake) as error:
        return MemoryState(rank, not falls_asleep, error=str(error))
    text = "gave %.2f GB back in %.3f s" if falls_asleep else "took %.2f GB again in %.3f s"
    logger.info(text, moved / 1e9, time.monotonic() - begin)
    return MemoryState(rank, falls_asleep, max(0, moved))


def prepare(runner: "DeviceRunner") -> None:
    """In a thread, while the rank serves."""
    Thread(target=_prepare, args=(runner,), daemon=True, name="prepare-sleep").start()


def _prepare(runner: "DeviceRunner") -> None:
    begin = time.monotonic()
    try:
        runner.prepare_sleep()
    except KernelError as error:
        logger.warning("not prepared to sleep: %s", error)
    else:
        logger.info("prepared to sleep in %.2f s", time.monotonic() - begin)
