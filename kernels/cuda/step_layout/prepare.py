"""The beginning of a step on the device: changes are applied, rows and tokens laid out. csrc/step_layout/prepare.cu.

One small copy down holds all that the host says; ids that the step before sampled lie in the state already.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache

import torch

from octavo.kernels.cuda.checks import wants_int32
from octavo.kernels.cuda.library import INT, POINTER, function
from octavo.kernels.cuda.step_layout.changes import SlotInit, pack_changes
from octavo.kernels.cuda.step_layout.steps import HEADER_WORDS, Rows, StepBuffers, pack_step, packed_words, step_buffers

__all__ = [
    "DeviceState", "Rows", "SlotInit", "StepBuffers", "apply_changes", "new_state", "pack_changes", "pack_step",
    "packed_words", "prepare_step", "step_buffers",
]  # fmt: skip

MOST_ROWS = 1024


@dataclass(frozen=True, slots=True)
class DeviceState:
    """Requests by slot; the last slot has no request and pads.

    tokens: [slots + 1, context + 1] int32; a sampled one is written where the next step reads it. tables: [slots + 1,
    width] int32. temperature, top_p, min_p: float32, top_k: int32, seeds: int64, each [slots + 1].
    """

    tokens: torch.Tensor
    tables: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seeds: torch.Tensor

    @property
    def pad_slot(self) -> int:
        return self.tokens.shape[0] - 1


def new_state(slots: int, context: int, width: int, pad: int, device: torch.device | str) -> DeviceState:
    """pad: the block that tables are filled with, the pool's last."""
    rows = slots + 1
    return DeviceState(
        tokens=torch.zeros((rows, context + 1), dtype=torch.int32, device=device),
        tables=torch.full((rows, width), pad, dtype=torch.int32, device=device),
        temperature=torch.zeros(rows, device=device),
        top_k=torch.zeros(rows, dtype=torch.int32, device=device),
        top_p=torch.ones(rows, device=device),
        min_p=torch.zeros(rows, device=device),
        seeds=torch.zeros(rows, dtype=torch.int64, device=device),
    )


@cache
def _apply_changes() -> Callable[..., None]:
    return function("prepare", "octavo_apply_changes", POINTER, INT, POINTER, INT, POINTER, INT, *[POINTER] * 5)


@cache
def _prepare_step() -> Callable[..., None]:
    return function("prepare", "octavo_prepare_step", POINTER, POINTER, INT, POINTER, INT, INT, POINTER, *[INT] * 3)


def apply_changes(changes: torch.Tensor, state: DeviceState) -> None:
    """changes: what pack_changes made, on the device or in pinned memory; a longer buffer may hold it. One launch."""
    wants_int32("changes", changes, changes.numel())
    _apply_changes()(
        changes.data_ptr(), changes.numel(), state.tokens.data_ptr(), state.tokens.shape[1], state.tables.data_ptr(),
        state.tables.shape[1], state.temperature.data_ptr(), state.top_k.data_ptr(), state.top_p.data_ptr(),
        state.min_p.data_ptr(), state.seeds.data_ptr(),
    )  # fmt: skip


def prepare_step(packed: torch.Tensor, state: DeviceState, step: StepBuffers) -> None:
    """packed: what pack_step made for the bucket that `step` has the sizes of, on the device. Fills all of `step`."""
    rows, samples, tokens = step.row_slots.numel(), step.sample_slots.numel(), step.ids.numel()
    if rows > MOST_ROWS:
        raise ValueError(f"row_slots: {rows} rows; at most {MOST_ROWS}")
    wants_int32("packed", packed, packed_words(rows, samples))
    wants_int32("header", step.header, HEADER_WORDS)
    addresses = [getattr(step, field.name).data_ptr() for field in fields(step)]
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    _prepare_step()(
        packed.data_ptr(), state.tokens.data_ptr(), state.tokens.shape[1], state.tables.data_ptr(),
        state.tables.shape[1], state.pad_slot, ctypes.addressof(table), rows, samples, tokens,
    )  # fmt: skip
