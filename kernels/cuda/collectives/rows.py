"""The ranks of a stage share the rows of a step while they sample: csrc/collectives/rows.cu. Sample i is that of rank
i % ranks.

Each rank has some columns of all rows of logits, and gets all columns of its own. What it draws of them the others get.
Graphs may hold both. Nothing waits on the host.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from octavo.kernels.cuda.checks import VECTOR_BYTES, dtype_code, wants_int32
from octavo.kernels.cuda.collectives.allreduce import Team
from octavo.kernels.cuda.library import INT, LONG, POINTER, function
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import StepBuffers


@dataclass(frozen=True, slots=True)
class RowBox:
    """Memory of each rank for whole rows that are its own. rows: that fit. columns: of one rank. size: bytes of a
    number."""

    rows: int
    columns: int
    ranks: int
    size: int

    @property
    def stride(self) -> int:
        """Numbers from one row to the next, aligned."""
        each = VECTOR_BYTES // self.size
        return -(-self.ranks * self.columns // each) * each

    @property
    def bytes(self) -> int:
        return self.rows * self.stride * self.size


@cache
def _send() -> Callable[..., None]:
    of_rows = (LONG, INT, INT, LONG, INT, POINTER, INT, INT)
    return function("rows", "octavo_rows_send", POINTER, INT, INT, POINTER, POINTER, *of_rows)


@cache
def _share() -> Callable[..., None]:
    return function("rows", "octavo_rows_share", POINTER, INT, INT, *[POINTER] * 6, LONG)


class RowTeam:
    """As Team: all ranks call the same functions in the same order, with tensors of the same sizes."""

    def __init__(self, team: Team, boxes: Sequence[int], box: RowBox) -> None:
        """boxes: addresses here of all ranks' boxes, aligned to 16 bytes."""
        self._team, self._box = team, box
        self._boxes = (ctypes.c_void_p * team.size)(*boxes)

    def send(
        self, logits: torch.Tensor, first: int = 0, header: torch.Tensor | None = None, settles: bool = True
    ) -> None:
        """Of logits [S, columns], each rank's rows are in its box then, whole, from row `first` on.

        header: of a step, of whose samples there are header[3]; None: all are real. settles: False where all ranks have
        called something else since the rows that lay there were last read.
        """
        samples, columns = logits.shape
        dtype_code("logits", logits)
        if columns != self._box.columns or logits.element_size() != self._box.size or logits.stride(1) != 1:
            raise ValueError(
                f"logits: {tuple(logits.shape)} {logits.dtype}, strides {logits.stride()}; wanted rows of"
                f" {self._box.columns} numbers of {self._box.size} bytes"
            )
        if first + -(-samples // self._team.size) > self._box.rows:
            raise ValueError(f"logits: {samples} rows from {first} on; the box of a rank has {self._box.rows}")
        if header is not None:
            wants_int32("header", header, header.numel())
        if samples:
            _send()(
                self._team.address, self._team.rank, self._team.size, ctypes.addressof(self._boxes), logits.data_ptr(),
                logits.stride(0), samples, columns, self._box.stride, first,
                None if header is None else header.data_ptr(), int(settles), self._box.size,
            )  # fmt: skip

    def share(self, drawn: torch.Tensor, step: StepBuffers, state: DeviceState) -> None:
        """drawn [2, S] int32, ids and failures of a step, has each rank's own; then it has all, and so has the pool."""
        wants_int32("drawn", drawn, 2, step.sample_slots.numel())
        _share()(
            self._team.address, self._team.rank, self._team.size, step.header.data_ptr(), step.sample_slots.data_ptr(),
            step.sample_ends.data_ptr(), drawn[0].data_ptr(), drawn[1].data_ptr(), state.tokens.data_ptr(),
            state.tokens.shape[1],
        )  # fmt: skip
