"""Rows of the residual stream that the ranks add up while they compute with the other rows. (DeepSeek-AI 2024, of a
model's two micro-batches)

    device    | products of half 0 | products of half 1 | products of half 0 | ...
    its links |                    | sum of half 0      | sum of half 1      | ...
"""

from collections.abc import Callable

import torch

from octavo.worker.distributed.collective import Overlapping
from octavo.worker.models.linear_methods.linear_method import Linear
from octavo.worker.models.residual import PendingRows, Rows

RmsNorm = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]  # of a backend


class Half(PendingRows):
    """[t, hidden] of which a sum may be under way."""

    def __init__(self, x: torch.Tensor, eps: float, collective: Overlapping, first: bool, rms_norm: RmsNorm) -> None:
        """x: overwritten. first: whether this is the first of the ranks, whose part has what was there before."""
        super().__init__(x, eps)
        self._collective, self._first, self._rms_norm = collective, first, rms_norm
        self._end: Callable[[], None] | None = None

    def _settle(self, norm: torch.Tensor | None) -> None:
        if self._end is not None:
            self._end()
            self._end = None

    def norm_linear_silu_mul(self, norm: torch.Tensor, linear: Linear) -> torch.Tensor:
        """By a product that does not need the whole device: the other half's sum is under way."""
        self._settle(norm)
        return linear.linear_silu_mul(self._rms_norm(self._x, norm, self._eps))

    def add(self, inputs: torch.Tensor, linear: Linear) -> None:
        """The sum is under way when this returns."""
        self._settle(None)
        if self._first:
            linear.linear_add(inputs, self._x)
        else:
            self._x = linear.linear(inputs)
        self._end = self._collective.begin_sum(self._x)


class Halves:
    """The residual stream of a rank in two halves of its rows."""

    def __init__(self, x: torch.Tensor, eps: float, collective: Overlapping, first: bool, rms_norm: RmsNorm) -> None:
        self._halves = [Half(rows, eps, collective, first, rms_norm) for rows in x.tensor_split(2)]

    def whole(self) -> torch.Tensor:
        return torch.cat([half.whole() for half in self._halves])

    def norm_linear(self, norm: torch.Tensor, linear: Linear) -> torch.Tensor:
        return torch.cat([half.norm_linear(norm, linear) for half in self._halves])

    def add(self, inputs: torch.Tensor, linear: Linear) -> None:
        for half, rows in zip(self._halves, inputs.tensor_split(2), strict=True):
            half.add(rows, linear)

    def each(self, compute: Callable[[Rows], None]) -> None:
        for half in self._halves:
            compute(half)
