"""Memory of the device that is given back and had again at the same addresses: csrc/region.cu. What is captured in a
graph, or stands in a tensor map, names addresses: it stays right.
"""

import ctypes
import os
import weakref
from functools import cache

import torch

from octavo.kernels.cuda.library import INT, LONG, POINTER, library
from octavo.kernels.errors import KernelError

PART_BYTES = 64 << 20  # backed at once, and copied at once
_ALIGNED = 512  # bytes, as PyTorch's own allocations are
_MOST_THREADS = 16  # that make pinned memory
_OUT_OF_MEMORY = 2  # CUDA's number


@cache
def _library() -> ctypes.CDLL:
    loaded = library("region")
    loaded.octavo_region_open.argtypes = [INT, LONG, LONG, POINTER]
    loaded.octavo_region_open.restype = loaded.octavo_region_base.restype = POINTER
    loaded.octavo_region_grow.argtypes = [POINTER, LONG]
    loaded.octavo_region_hold.argtypes = [POINTER, INT]
    loaded.octavo_region_fill.argtypes = [POINTER, POINTER]
    loaded.octavo_region_bytes.restype = LONG
    for name in ("base", "bytes", "release", "back", "close"):
        getattr(loaded, f"octavo_region_{name}").argtypes = [POINTER]
    for name in ("grow", "hold", "release", "back", "fill"):
        getattr(loaded, f"octavo_region_{name}").restype = INT
    loaded.octavo_region_close.restype = None
    return loaded


def aligned(size: int) -> int:
    """Where the next allocation begins after one of `size` bytes that begins at 0."""
    return -(-size // _ALIGNED) * _ALIGNED


class Region:
    """Addresses for `most` bytes. What is allocated stays allocated; all of it goes and comes back together.

    Raises KernelError where the driver lacks this, or memory is lacking.
    """

    def __init__(self, device: torch.device, most: int, part: int = PART_BYTES) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        code = ctypes.c_int()
        self._region = _library().octavo_region_open(index, max(1, most), part, ctypes.byref(code))
        _check(code.value, f"addresses for {most} bytes")
        self._close = weakref.finalize(self, _library().octavo_region_close, self._region)
        self._close.atexit = False  # the driver takes it back with the process
        self._base: int = _library().octavo_region_base(self._region)
        self._used = 0

    @property
    def bytes(self) -> int:
        """Of the device's memory that it takes while it is backed."""
        return int(_library().octavo_region_bytes(self._region))

    def allocate(self, size: int) -> int:
        """The address of `size` fresh bytes."""
        begin = aligned(self._used)
        _check(_library().octavo_region_grow(self._region, begin + size), f"{size} bytes of the device")
        self._used = begin + size
        return self._base + begin

    def hold(self) -> None:
        """Copy what lies here to pinned memory of the host, once: it must not change any more."""
        threads = max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0))))
        _check(_library().octavo_region_hold(self._region, threads), f"{self.bytes} bytes of pinned host memory")

    def release(self) -> None:
        """Give the device's memory back. Nothing that uses it may be under way."""
        _check(_library().octavo_region_release(self._region), "memory that is given back")

    def back(self) -> None:
        """Have memory at the same addresses again, with anything in it. On an error there is none."""
        _check(_library().octavo_region_back(self._region), f"{self.bytes} bytes of the device")

    def fill(self, stream: torch.cuda.Stream) -> None:
        """After `back`: what the host holds comes by `stream`, else zeros."""
        _check(_library().octavo_region_fill(self._region, stream.cuda_stream), "what the host holds")

    def close(self) -> None:
        """Give back everything, the addresses too; as when it is collected."""
        self._close()


def _check(code: int, what: str) -> None:
    if code:
        raise KernelError(f"{what}: {'out of memory' if code == _OUT_OF_MEMORY else f'CUDA error {code}'}")
