"""A process that ends with its parent, however that ends: a parent that is killed cannot end its children itself."""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

VARIABLE = "OCTAVO_PARENT"  # its pid and a signal
_PR_SET_PDEATHSIG = 1


def ending_with_us(number: signal.Signals) -> Mapping[str, str]:
    """Environment of a process that our main thread starts: it gets the signal when this process ends."""
    return {VARIABLE: f"{os.getpid()} {number.value}"}


def end_with_parent() -> None:
    """Apply and remove VARIABLE, if it is set; the process's own children do not inherit it."""
    said = os.environ.pop(VARIABLE, None)
    if said is not None and sys.platform == "linux":
        parent, number = map(int, said.split())
        die_with(parent, signal.Signals(number))


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Get this signal when `parent` ends; end at once when it has ended already. Raises OSError."""
    prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def prctl(option: int, value: int) -> None:
    """Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
