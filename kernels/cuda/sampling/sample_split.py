"""The next token of each row where ranks share the vocabulary: their parts, joined as one rank joins its own.
csrc/sampling/sample_split.cu.

Exact for rows that are greedy or have a temperature alone. For rows with filters the id is only a placeholder.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import torch

from octavo.kernels.cuda.checks import wants_int32
from octavo.kernels.cuda.library import INT, POINTER, function
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import StepBuffers


@cache
def _join() -> Callable[..., None]:
    return function("sample_split", "octavo_join_samples", POINTER, *[INT] * 4, POINTER, POINTER, INT)


def join_samples(
    parts: torch.Tensor, columns: int, step: StepBuffers, state: DeviceState
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, failed), int32 [S], of parts [ranks, S, parts, 8] of ranks with so many columns each; as sample.sample."""
    ranks, samples, chunks, words = parts.shape
    wants_int32("parts", parts, ranks, samples, chunks, words)
    ids, failed = torch.empty((2, samples), dtype=torch.int32, device=parts.device)
    tensors = (step.header, step.sample_slots, step.sample_ends, ids, failed)
    addresses = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    if samples:
        _join()(
            parts.data_ptr(), ranks, samples, chunks, columns, ctypes.addressof(addresses), state.tokens.data_ptr(),
            state.tokens.shape[1],
        )  # fmt: skip
    return ids, failed
