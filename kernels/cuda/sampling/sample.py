"""The next token of each sampled row, on the device: csrc/sampling/sample.cu.

worker/runner/cpu/sampler.py draws the same ids on the CPU.

    id = argmax over v of (logits[v] - best) / temperature + gumbel(seed, counter, v)

The noise is bit for bit that of the CPU's, so both draw the same token up to the rounding of exp and log. min_p removes
entries first, the ones whose chance is less than min_p times the best's, then top_k and top_p of the rest.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Protocol

import torch

from octavo.kernels.cuda.checks import dtype_code, wants_int32
from octavo.kernels.cuda.library import INT, LONG, POINTER, function
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import HEADER_WORDS

MOST_VOCABULARY = (1 << 20) - 1
# Of csrc/sampling/sample.cu: threads and logits a thread of the first kernel, CTAs of it on an SM, words of a Part.
_THREADS, _EACH, _FEW, _CTAS, _PART_WORDS = 256, 16, 8, 4, 8
_GROUP_BYTES = 512  # of logits that a warp reads at once
_SMS = 132


class Samples(Protocol):
    """int32 on the device. header[3]: how many samples are real; of each, [S]: its slot, where its id is written to the
    slot's tokens, and how many it has sampled before. StepBuffers are such."""

    @property
    def header(self) -> torch.Tensor: ...
    @property
    def sample_slots(self) -> torch.Tensor: ...
    @property
    def sample_ends(self) -> torch.Tensor: ...
    @property
    def counters(self) -> torch.Tensor: ...


@cache
def _sample() -> Callable[..., None]:
    values = (POINTER, LONG, INT, INT, *[POINTER] * 2, INT, INT, *[POINTER] * 2, *[INT] * 4)
    return function("sample", "octavo_sample", *values)


def sample(
    logits: torch.Tensor, step: Samples, state: DeviceState, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, failed), int32 [S], of logits [S, V], rows apart or not; ids go into state.tokens at step.sample_ends too.

    failed: 1 where the greatest logit is not finite; the id is then any. Samples beyond header[3] are left as they are.
    out: where ids, then failed shall lie; int32 of at least 2 S.
    """
    samples = logits.shape[0]
    out = torch.empty(2 * samples, dtype=torch.int32, device=logits.device) if out is None else out[: 2 * samples]
    wants_int32("out", out, 2 * samples)
    ids, failed = out[:samples], out[samples:]
    _launch(logits, step, state, ids, failed, 0, _ranks(samples))
    return ids, failed


def sample_parts(logits: torch.Tensor, step: Samples, state: DeviceState, first: int) -> torch.Tensor:
    """What the parts of each row would draw, [S, parts, 8] int32, of logits [S, columns] whose ids begin at `first`;
    for sample_split.py, once the parts of all ranks are together."""
    unused = torch.empty(0, dtype=torch.int32, device=logits.device)
    return _launch(logits, step, state, unused, unused, first, 0)


def _launch(
    logits: torch.Tensor, step: Samples, state: DeviceState, ids: torch.Tensor, failed: torch.Tensor, first: int,
    ranks: int,
) -> torch.Tensor:  # fmt: skip
    samples, vocabulary = logits.shape
    code = _checked(logits, step)
    each, turns, chunks = _partition(samples, vocabulary)
    groups = -(-vocabulary * logits.element_size() // _GROUP_BYTES)
    parts, maxima = (
        torch.empty((samples, size), dtype=torch.int32, device=logits.device) for size in (chunks * _PART_WORDS, groups)
    )
    of_samples = _addresses(step.header, step.sample_slots, step.sample_ends, step.counters, ids, failed)
    of_requests = _addresses(state.temperature, state.top_p, state.min_p, state.top_k, state.seeds, state.tokens)
    if samples:
        _sample()(
            logits.data_ptr(), logits.stride(0), samples, vocabulary, ctypes.addressof(of_samples),
            ctypes.addressof(of_requests), state.tokens.shape[1], first, parts.data_ptr(), maxima.data_ptr(), each,
            turns, ranks, code,
        )  # fmt: skip
    return parts.view(samples, chunks, _PART_WORDS)


def _checked(logits: torch.Tensor, step: Samples) -> int:
    samples, vocabulary = logits.shape
    if logits.stride(1) != 1 or vocabulary > MOST_VOCABULARY:
        raise ValueError(f"logits: {tuple(logits.shape)}, strides {logits.stride()}; rows of at most {MOST_VOCABULARY}")
    for name in ("sample_slots", "sample_ends", "counters"):
        wants_int32(name, getattr(step, name), samples)
    wants_int32("header", step.header, HEADER_WORDS)
    return dtype_code("logits", logits)


def _partition(samples: int, vocabulary: int) -> tuple[int, int, int]:
    """Of the first kernel: logits a thread reads at once, how many times, and CTAs a row.

    Few rows are spread over the device; many are cut so that all CTAs run at once, and each learns what it must beat.
    """
    few = -(-vocabulary // (_FEW * _THREADS))
    if samples * few <= 8 * _SMS:
        return _FEW, 1, few
    chunks = -(-vocabulary // (_EACH * _THREADS))
    turns = min(chunks, -(-samples * chunks // (_CTAS * _SMS)))
    return _EACH, turns, -(-chunks // turns)


def _ranks(samples: int) -> int:
    """CTAs that share a filtered row: a power of two, more where few rows leave the device to each."""
    return next((ranks for ranks in (8, 4, 2) if ranks * samples <= 4 * _SMS), 1)


def _addresses(*tensors: torch.Tensor) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
