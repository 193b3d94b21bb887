"""The residual stream [t, hidden]: what layers read of it and add to it, alone or with the other ranks of a stage.

Rows            a rank alone
└── PendingRows     ranks that add up: of each addition a sum over the ranks is pending until the rows are read
    ├── SummedRows      the sum is made then, and with it the norm that is read, where ranks know a way
    └── Half            the sum is under way, while the device computes with other rows (overlap.py)
"""

from collections.abc import Callable
from typing import Protocol

import torch

from octavo.worker.distributed.collective import Collective, Norming
from octavo.worker.models.linear_methods.linear_method import Linear


class Residual(Protocol):
    """As a layer sees it: `Rows`, or `Halves` of them. What is returned is of all rows."""

    def norm_linear(self, norm: torch.Tensor, linear: Linear) -> torch.Tensor:
        """rms_norm(x) W^T + bias: [t, out]."""

    def add(self, inputs: torch.Tensor, linear: Linear) -> None:
        """x += inputs W^T + bias, of which each rank has some of the columns of W."""

    def each(self, compute: Callable[["Rows"], None]) -> None:
        """Of all rows, or of some after others: while one's sum is under way, the others are computed with."""


class Rows:
    def __init__(self, x: torch.Tensor, eps: float) -> None:
        """x: overwritten. eps: of all norms."""
        self._x, self._eps = x, eps

    def whole(self) -> torch.Tensor:
        """The rows, with all that was added."""
        return self._x

    def norm_linear(self, norm: torch.Tensor, linear: Linear) -> torch.Tensor:
        return linear.norm_linear(self._x, norm, self._eps)

    def norm_linear_silu_mul(self, norm: torch.Tensor, linear: Linear) -> torch.Tensor:
        """silu(gate) * up of [gate, up] = rms_norm(x) W^T: [t, out / 2]. (Shazeer 2020)"""
        return linear.norm_linear_silu_mul(self._x, norm, self._eps)

    def add(self, inputs: torch.Tensor, linear: Linear) -> None:
        linear.linear_add(inputs, self._x)

    def each(self, compute: Callable[["Rows"], None]) -> None:
        compute(self)


class PendingRows(Rows):
    def _settle(self, norm: torch.Tensor | None) -> torch.Tensor | None:
        """Complete the sum, if any. rms_norm of the rows by `norm`, where that was made in passing."""
        raise NotImplementedError

    def whole(self) -> torch.Tensor:
        self._settle(None)
        return self._x

    def norm_linear(self, norm: torch.Tensor, linear: Linear) -> torch.Tensor:
        normed = self._settle(norm)
        return linear.norm_linear(self._x, norm, self._eps) if normed is None else linear.linear(normed)

    def norm_linear_silu_mul(self, norm: torch.Tensor, linear: Linear) -> torch.Tensor:
        normed = self._settle(norm)
        if normed is None:
            return linear.norm_linear_silu_mul(self._x, norm, self._eps)
        return linear.linear_silu_mul(normed)


class SummedRows(PendingRows):
    def __init__(self, x: torch.Tensor, eps: float, collective: Collective, norming: Norming | None) -> None:
        """norming: the collective, if it can normalise."""
        super().__init__(x, eps)
        self._collective, self._norming = collective, norming
        self._part: torch.Tensor | None = None

    def _settle(self, norm: torch.Tensor | None) -> torch.Tensor | None:
        part, self._part = self._part, None
        if part is None:
            return None
        if norm is not None and self._norming is not None:
            return self._norming.add_sum_norm_(self._x, part, norm, self._eps)
        self._collective.add_sum_(self._x, part)
        return None

    def add(self, inputs: torch.Tensor, linear: Linear) -> None:
        self._settle(None)
        self._part = linear.linear(inputs)
