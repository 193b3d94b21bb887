"""NCCL's sums, gathers and swaps on the current stream, where GPUs do not reach each other's memory; in graphs, too.

The library that PyTorch has loaded is called by its C interface: PyTorch's own groups bring threads and global state.
NVLink multicast (NVLS) stays off: its memory outlives killed ranks on some hosts.
"""

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from octavo.kernels.errors import KernelError

ID_BYTES = 128
_SUM = 0
_TYPES = {torch.uint8: 1, torch.int64: 4, torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}


class _Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * ID_BYTES)]


@cache
def _library() -> ctypes.CDLL:
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    loaded = ctypes.CDLL("libnccl.so.2")
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    loaded.ncclGetUniqueId.argtypes = [ctypes.POINTER(_Id)]
    loaded.ncclCommInitRank.argtypes = [ctypes.POINTER(pointer), number, _Id, number]
    loaded.ncclAllReduce.argtypes = [pointer, pointer, size, number, number, pointer, pointer]
    loaded.ncclAllGather.argtypes = [pointer, pointer, size, number, pointer, pointer]
    for name in ("ncclSend", "ncclRecv"):
        getattr(loaded, name).argtypes = [pointer, size, number, number, pointer, pointer]
    loaded.ncclGetErrorString.argtypes, loaded.ncclGetErrorString.restype = [number], ctypes.c_char_p
    return loaded


def available() -> bool:
    try:
        _library()
    except OSError:
        return False
    return True


def new_id() -> bytes:
    """What one rank makes, and all of them meet by."""
    made = _Id()
    _call("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made)


class Nccl:
    """A Collective of `size` ranks, each with the current device."""

    def __init__(self, rank: int, size: int, identity: bytes) -> None:
        """Waits until all are there."""
        self.rank, self.size = rank, size
        self._comm = ctypes.c_void_p()
        _call("ncclCommInitRank", ctypes.byref(self._comm), size, _Id.from_buffer_copy(identity), rank)

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        _call("ncclAllReduce", x.data_ptr(), x.data_ptr(), x.numel(), _TYPES[x.dtype], _SUM, self._comm, _stream())
        return x

    def add_sum_(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        residual += self.sum_(x)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty((self.size, *x.shape))
        size = x.numel() * x.element_size()
        _call("ncclAllGather", x.data_ptr(), out.data_ptr(), size, _TYPES[torch.uint8], self._comm, _stream())
        return out

    def swap(self, sent: Sequence[torch.Tensor], came: Sequence[torch.Tensor]) -> None:
        """came[rank] becomes what that rank has sent to this one; sent[rank] goes there. All are contiguous."""
        _call("ncclGroupStart")
        for call, tensors in (("ncclSend", sent), ("ncclRecv", came)):
            for rank, x in enumerate(tensors):
                if size := x.numel() * x.element_size():
                    _call(call, x.data_ptr(), size, _TYPES[torch.uint8], rank, self._comm, _stream())
        _call("ncclGroupEnd")


def _stream() -> int:
    return torch.cuda.current_stream().cuda_stream


def _call(name: str, *arguments: Any) -> None:  # Any: as the C function takes them
    code = getattr(_library(), name)(*arguments)
    if code:
        raise KernelError(f"{name}: {_library().ncclGetErrorString(code).decode()}")
