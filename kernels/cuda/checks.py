"""What the kernels ask of a tensor; what they cannot use is refused by its name."""

import torch

from octavo.kernels.cuda.library import DTYPES

VECTOR_BYTES = 16  # of one access


def dtype_code(name: str, x: torch.Tensor) -> int:
    """The number that csrc knows a dtype by."""
    code = DTYPES.get(x.dtype)
    if code is None:
        raise ValueError(f"{name}: {x.dtype}; the kernels know float32, bfloat16 and float16")
    return code


def wants_int32(name: str, x: torch.Tensor, *shape: int) -> None:
    if x.dtype != torch.int32 or not x.is_contiguous() or x.shape != shape:
        raise ValueError(f"{name}: {x.dtype} {tuple(x.shape)}, strides {x.stride()}; wanted contiguous int32 {shape}")


def wants_like(name: str, x: torch.Tensor, like: torch.Tensor, *shape: int) -> None:
    """Contiguous, of `shape`, and of the dtype of `like`."""
    if x.dtype != like.dtype or not x.is_contiguous() or x.shape != shape:
        raise ValueError(
            f"{name}: {x.dtype} {tuple(x.shape)}, strides {x.stride()}; wanted contiguous {like.dtype} {shape}"
        )


def wants_vectors(name: str, x: torch.Tensor, width: int) -> None:
    """Every row of x, and each `width` elements of it, can be read 16 bytes at a time."""
    size = VECTOR_BYTES // x.element_size()
    outer = x.stride()[:-1] if x.shape[0] > 1 else ()
    if x.stride(-1) != 1 or width % size or any(stride % size for stride in outer) or x.data_ptr() % VECTOR_BYTES:
        raise ValueError(
            f"{name}: rows of {width}, strides {x.stride()}, at {x.data_ptr():#x}; wanted aligned multiples of {size}"
        )
