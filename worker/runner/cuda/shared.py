"""Memory that ranks of one host reach from each other's GPUs, tried before a step relies on it.

Each makes its own, tells the others how to open it, and writes a word into all others'. What only seems to work (GPUs
behind bridges that drop such writes) is found here, and not by a step that never ends.
"""

from collections.abc import Callable
from pathlib import Path

from octavo.kernels.cuda.collectives import ipc
from octavo.kernels.errors import KernelError
from octavo.worker.errors import WorkerError

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_BOOT_BYTES = 36
_NOTHING = b"\0" * (_BOOT_BYTES + ipc.HANDLE_BYTES)
_TRIED = 0x0C7A0000  # and the writer's index
_WORD_BYTES, _TRIED_BYTES = 4, 256  # of a word, and of everybody's, before what is asked for

# What one says, and what all have said, in their order; everybody calls it as often.
Exchange = Callable[[bytes], list[bytes]]


class Unshared(WorkerError):
    """The GPUs do not reach each other's memory; the message says why."""


def share(size: int, index: int, exchange: Exchange) -> list[int]:
    """Addresses, here, of everybody's fresh memory; this rank's has `size` bytes. index: of this rank among them.

    Raises Unshared, on all of them or on none.
    """
    why, bases, own = "", list[int](), None
    try:
        own = ipc.make(_TRIED_BYTES + size)
    except KernelError as error:
        why = str(error)
    heard = exchange(_NOTHING if own is None else _boot() + own.handle)
    if own is not None and _NOTHING not in heard:  # else the rank that has nothing says why
        try:
            bases = [own.at if other == index else _opened(said) for other, said in enumerate(heard)]
            for other, base in enumerate(bases):
                if other != index:
                    ipc.write(base + index * _WORD_BYTES, _TRIED + index)
        except (KernelError, Unshared) as error:
            why = str(error)
    _agree(why, exchange)
    for other in range(len(bases)):
        if other != index and ipc.read(bases[index] + other * _WORD_BYTES) != _TRIED + other:
            why = f"what rank {other} wrote to the GPU of rank {index} did not arrive"
    _agree(why, exchange)
    return [base + _TRIED_BYTES for base in bases]


def _agree(why: str, exchange: Exchange) -> None:
    """Raises Unshared for all when it fails for one."""
    said = [answer.rstrip(b"\0").decode() for answer in exchange(why.encode()[:200].ljust(200, b"\0"))]
    if any(said):
        raise Unshared(next(filter(None, said)))


def _boot() -> bytes:
    """The same in all containers of a host, until it is started again."""
    return _BOOT.read_bytes()[:_BOOT_BYTES]


def _opened(said: bytes) -> int:
    if said[:_BOOT_BYTES] != _boot():
        raise Unshared("they are on several hosts")
    return ipc.open_(said[_BOOT_BYTES:]).at
