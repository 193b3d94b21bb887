"""Loads a library that build.py made, and calls its functions: pointers, sizes and the current stream.

Every function of csrc returns a CUDA error code as int and takes the stream last.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

LIBRARIES = Path(__file__).resolve().parent.parent / "lib"
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

POINTER, INT, LONG, FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float


class MissingKernels(RuntimeError):
    """The libraries were not built for this installation."""

    reason = "KernelsMissing"  # in the status


class KernelError(RuntimeError):
    """A launch was refused: the arguments or the device do not fit."""


@cache
def library(name: str) -> ctypes.CDLL:
    path = LIBRARIES / f"{name}.so"
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise MissingKernels(f"{path}: {error}; build it: python -m octavo.kernels.build {name}") from error


def function(library_name: str, name: str, *arguments: type) -> Callable[..., None]:
    """`name` of a library, called with tensors' addresses and numbers; the current stream is added."""
    call = getattr(library(library_name), name)
    call.argtypes = [*arguments, POINTER]
    call.restype = INT

    def launch(*values: int | float | None) -> None:
        code = call(*values, torch.cuda.current_stream().cuda_stream)
        if code:
            raise KernelError(f"{name}: CUDA error {code}")

    return launch
