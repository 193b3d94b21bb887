"""Memory that ranks of one host reach from each other's GPUs, tried before anybody relies on it.

Each makes its own, tells the others how to open it, and writes a word into everybody's. What only seems to work (GPUs
behind bridges that drop such writes) is found here, and not by a step that never ends.
"""

from collections.abc import Callable
from pathlib import Path

from octavo.kernels.cuda import ipc
from octavo.kernels.cuda.library import KernelError

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_BOOT_BYTES = 36
_TRIED = 0x0C7A0000  # and the writer's index
_WORD_BYTES, _MOST = 4, 64

# What one says, and what all have said, in their order; everybody calls it as often.
Exchange = Callable[[bytes], list[bytes]]


class Unshared(Exception):
    """The GPUs do not reach each other's memory; the message says why."""


def share(size: int, index: int, exchange: Exchange) -> list[int]:
    """Addresses, here, of everybody's fresh memory of `size` bytes. index: of this rank among them.

    Raises Unshared, on all of them or on none.
    """
    whole = size + _MOST * _WORD_BYTES  # behind what is asked for: a word of each
    why, addresses = "", list[int]()
    try:
        own = ipc.make(whole)
        said = _boot() + own.handle
    except KernelError as error:
        why, own, said = str(error), None, b"\0" * (_BOOT_BYTES + ipc.HANDLE_BYTES)
    heard = exchange(said)
    if own is not None:
        try:
            addresses = [own.at if other == index else _opened(said) for other, said in enumerate(heard)]
            for other, at in enumerate(addresses):
                if other != index:
                    ipc.write(at + size + index * _WORD_BYTES, _TRIED + index)
        except (KernelError, Unshared) as error:
            why = str(error)
    _agree(why, exchange)
    assert own is not None
    for other in range(len(heard)):
        if other != index and ipc.read(own.at + size + other * _WORD_BYTES) != _TRIED + other:
            why = f"what rank {other} wrote to the GPU of rank {index} did not arrive"
    _agree(why, exchange)
    return addresses


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
