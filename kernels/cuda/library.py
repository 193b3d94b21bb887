"""Loads a library that build.py made, and calls its functions: pointers, sizes and the current stream.

Every function of csrc returns a CUDA error code as int and takes the stream last.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from octavo.kernels.errors import KernelError, MissingKernels

_HERE = Path(__file__).resolve().parent.parent
SOURCES, LIBRARIES = _HERE / "csrc", _HERE / "lib"
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

POINTER, INT, LONG, FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float


def check_built() -> None:
    """Without the device: raises MissingKernels unless every source of csrc has its library."""
    for source in sorted(SOURCES.rglob("*.cu")):
        path = LIBRARIES / f"{source.stem}.so"
        if not path.exists():
            raise MissingKernels(f"{path}: no such file; build the kernels: python -m octavo.kernels.build")


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
