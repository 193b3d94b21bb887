"""Sums over GPUs of one host, without a library: csrc/collectives/allreduce.cu. Graphs may hold them."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import torch

from octavo.kernels.cuda.checks import VECTOR_BYTES
from octavo.kernels.cuda.library import DTYPES, FLOAT, INT, LONG, POINTER, function, library

MOST_RANKS = 8
_CODES = DTYPES | {torch.int64: 3}
_SMALL_BYTES = 512 << 10  # in one shot: each peer has all of it written to, twice over
_MOST_VECTORS = 2048  # of a row that a CTA normalises: kHeld * kThreads of allreduce_norm.cuh


def region_bytes(ranks: int) -> int:
    """Of the shared memory that each of them makes."""
    size = library("allreduce").octavo_team_bytes
    size.argtypes, size.restype = [INT], LONG
    return int(size(ranks))


@cache
def _sum() -> Callable[..., None]:
    return function("allreduce", "octavo_team_sum", POINTER, INT, INT, POINTER, POINTER, LONG, LONG, INT)


@cache
def _sum_norm() -> Callable[..., None]:
    of_rows = (*[POINTER] * 4, INT, INT, FLOAT, LONG, INT)
    return function("allreduce", "octavo_team_sum_norm", POINTER, INT, INT, *of_rows)


class Team:
    """Ranks that all call the same functions in the same order, with tensors of the same sizes. Nothing waits on the
    host."""

    def __init__(self, rank: int, regions: Sequence[int]) -> None:
        """regions: addresses here of all ranks' shared memory, all zeros at first."""
        if not 2 <= len(regions) <= MOST_RANKS:
            raise ValueError(f"regions: {len(regions)} ranks; 2 to {MOST_RANKS} are served")
        self.rank, self.size = rank, len(regions)
        self._regions = (ctypes.c_void_p * self.size)(*regions)
        self._most_small = _SMALL_BYTES // (self.size - 1)

    def sum_(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> None:
        """x becomes the sum over the ranks, or residual has that added, and x is then any; the same to the bit on each.

        float32, bfloat16, float16, or int64 (of which sums may be large).
        """
        code = _CODES.get(x.dtype)
        if code is None:
            raise ValueError(f"x: {x.dtype}; sums are of float32, bfloat16, float16 and int64")
        _wants_plain("x", x)
        if residual is not None:
            _wants_plain("residual", residual)
            if residual.dtype != x.dtype or residual.shape != x.shape:
                raise ValueError(f"residual: {residual.dtype} {tuple(residual.shape)}; x: {x.dtype} {tuple(x.shape)}")
        if x.numel():
            onto = None if residual is None else residual.data_ptr()
            _sum()(self.address, self.rank, self.size, x.data_ptr(), onto, x.numel(), self._most_small, code)

    def norms(self, x: torch.Tensor) -> bool:
        """Whether sum_norm takes such an x: few rows of any number of ranks, or all of two."""
        vectors = x.shape[-1] * x.element_size() / VECTOR_BYTES
        few = x.numel() * x.element_size() <= self._most_small
        return x.dtype in DTYPES and vectors.is_integer() and vectors <= _MOST_VECTORS and (few or self.size == 2)

    def sum_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """residual [t, H] += the sum of x over the ranks, as sum_ does it; and rms_norm of that with weight [H]: a new
        tensor [t, H], the same to the bit on each. Wants that it `norms` x."""
        for name, tensor in (("x", x), ("residual", residual), ("weight", weight)):
            _wants_plain(name, tensor)
        rows, width = x.shape
        if not self.norms(x) or residual.shape != x.shape or weight.shape != (width,):
            shapes = f"x {tuple(x.shape)}, residual {tuple(residual.shape)}, weight {tuple(weight.shape)}"
            raise ValueError(f"{shapes} {x.dtype}: not of one width, or more than is summed and normalised at once")
        if not residual.dtype == weight.dtype == x.dtype:
            raise ValueError(f"residual: {residual.dtype}, weight: {weight.dtype}; x: {x.dtype}")
        out = torch.empty_like(x)
        if rows:
            _sum_norm()(
                self.address, self.rank, self.size, x.data_ptr(), residual.data_ptr(), weight.data_ptr(),
                out.data_ptr(), rows, width, eps, self._most_small, DTYPES[x.dtype],
            )  # fmt: skip
        return out

    @property
    def address(self) -> int:
        """Of the addresses of the regions."""
        return ctypes.addressof(self._regions)


def _wants_plain(name: str, x: torch.Tensor) -> None:
    if not x.is_contiguous() or x.data_ptr() % VECTOR_BYTES:
        raise ValueError(f"{name}: strides {x.stride()}, at {x.data_ptr():#x}; wanted contiguous and 16-byte aligned")
