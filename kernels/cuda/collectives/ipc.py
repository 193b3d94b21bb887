"""Memory that ranks of one host share between their GPUs: csrc/collectives/ipc.cu. A handle of 64 bytes names it.

Owned and opened memory live as long as the process: peers may still read it when a rank is done, and the driver takes
it back with the process, however that ends.
"""

import ctypes
from functools import cache
from typing import NamedTuple

import torch

from octavo.kernels.cuda.library import INT, LONG, POINTER, library
from octavo.kernels.errors import KernelError

HANDLE_BYTES = 64
_PAGE = 2 << 20


class Region(NamedTuple):
    """at: its address here. handle: what others open it by; empty where this process has opened it."""

    at: int
    handle: bytes


@cache
def _library() -> ctypes.CDLL:
    loaded = library("ipc")
    loaded.octavo_ipc_make.argtypes = [LONG, POINTER, POINTER, POINTER]
    loaded.octavo_ipc_open.argtypes = [POINTER, POINTER, POINTER]
    loaded.octavo_ipc_write.argtypes = [POINTER, ctypes.c_uint, POINTER]
    loaded.octavo_ipc_read.argtypes = [POINTER, POINTER, POINTER]
    for name in ("make", "open", "write", "read"):
        getattr(loaded, f"octavo_ipc_{name}").restype = INT
    return loaded


def make(size: int) -> Region:
    """Fresh memory of the current device, all zeros. Raises KernelError where it cannot be shared."""
    size = -(-size // _PAGE) * _PAGE  # smaller memory would be shared with what else lies in its page
    at, handle = ctypes.c_void_p(), ctypes.create_string_buffer(HANDLE_BYTES)
    code = _library().octavo_ipc_make(size, ctypes.byref(at), handle, _stream())
    if code or at.value is None:
        raise KernelError(f"shared memory of {size} bytes: cudaMalloc or cudaIpcGetMemHandle: CUDA error {code}")
    return Region(at.value, handle.raw)


def open_(handle: bytes) -> Region:
    """Another process's memory. Raises KernelError where this GPU does not reach it."""
    at = ctypes.c_void_p()
    code = _library().octavo_ipc_open(ctypes.create_string_buffer(handle, HANDLE_BYTES), ctypes.byref(at), None)
    if code or at.value is None:
        raise KernelError(f"cudaIpcOpenMemHandle: CUDA error {code}")
    return Region(at.value, b"")


def write(at: int, word: int) -> None:
    """A word at an address that this GPU reaches."""
    if code := _library().octavo_ipc_write(at, word, _stream()):
        raise KernelError(f"a write to another GPU: CUDA error {code}")


def read(at: int) -> int:
    word = ctypes.c_uint()
    if code := _library().octavo_ipc_read(at, ctypes.byref(word), _stream()):
        raise KernelError(f"a read of shared memory: CUDA error {code}")
    return word.value


def _stream() -> int:
    return torch.cuda.current_stream().cuda_stream
