"""Rows of the residual stream that the ranks add up while they compute with the other rows. (DeepSeek-AI 2024, of a
model's two micro-batches)

    device    | products of half 0 | products of half 1 | products of half 0 | ...
    its links |                    | sum of half 0      | sum of half 1      | ...
"""

from collections.abc import Callable
from typing import Any

import torch

from octavo.kernels.backend import Backend
from octavo.worker.distributed.collective import Overlapping


class Half:
    """[t, hidden] of which a sum may be under way."""

    def __init__(self, x: torch.Tensor, backend: Backend, collective: Overlapping, first: bool) -> None:
        """x: overwritten. first: whether this is the first of the ranks, whose part has what was there before."""
        self._x, self._backend, self._collective, self._first = x, backend, collective, first
        self._end: Callable[[], None] | None = None

    def whole(self) -> torch.Tensor:
        """The rows, once their sum is there."""
        if self._end is not None:
            self._end()
            self._end = None
        return self._x

    def add(self, inputs: torch.Tensor, matrix: Any) -> None:
        """x += inputs W^T, of which each rank has some of the columns of W. The sum is under way when this returns."""
        x = self.whole()
        if self._first:
            self._backend.linear_add(inputs, matrix, x)
        else:
            self._x = x = self._backend.linear(inputs, matrix)
        self._end = self._collective.begin_sum(x)
