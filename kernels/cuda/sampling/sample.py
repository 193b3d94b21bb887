"""The next token of each sampled row, on the device: csrc/sampling/sample.cu.

worker/runner/cpu/sampler.py draws the same ids on the CPU.

    id = argmax over v of (logits[v] - best) / temperature + gumbel(seed, counter, v)

The noise is bit for bit that of the CPU's, so both draw the same token up to the rounding of exp and log. min_p removes
entries first, the ones whose chance is less than min_p times the best's, then top_k and top_p of the rest.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch

from octavo.kernels.cuda.checks import dtype_code, wants_int32
from octavo.kernels.cuda.library import INT, LONG, POINTER, function
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import HEADER_WORDS

MOST_VOCABULARY = (1 << 20) - 1
# Of csrc/sampling/sample.cu: threads and logits a thread of the first kernel, CTAs of it on an SM; words of a result.
_THREADS, _EACH, _FEW, _CTAS, _RESULT_WORDS = 256, 16, 8, 4, 8
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


@dataclass(frozen=True, slots=True)
class OwnSamples:
    """Which of a step's samples a rank draws: rank, rank + size, and so on."""

    rank: int = 0
    size: int = 1

    def count(self, samples: int) -> int:
        """Of so many samples, how many are its own."""
        return len(range(self.rank, samples, self.size))


ALL_SAMPLES = OwnSamples()


@cache
def _sample() -> Callable[..., None]:
    values = (POINTER, LONG, INT, INT, *[POINTER] * 2, INT, INT, INT, *[POINTER] * 2, *[INT] * 4)
    return function("sample", "octavo_sample", *values)


def sample(
    logits: torch.Tensor,
    step: Samples,
    state: DeviceState,
    out: torch.Tensor | None = None,
    own: OwnSamples = ALL_SAMPLES,
    chosen: torch.Tensor | None = None,
) -> torch.Tensor:
    """[2, S] int32, ids and failures of the step's S samples; ids go into state.tokens at step.sample_ends too.

    logits [n, V], rows apart or not: of the `own` samples, or of the ones that `chosen` [n] int32 names. All
    others, and samples beyond header[3], are left as they are. failed: 1 where the greatest logit is not finite; the id
    is then any. out: where ids and failures shall lie.
    """
    rows, vocabulary = logits.shape
    samples = step.sample_slots.numel()
    out = torch.empty((2, samples), dtype=torch.int32, device=logits.device) if out is None else out
    code = _checked(logits, step)
    wants_int32("out", out, 2, samples)
    if chosen is not None:
        wants_int32("chosen", chosen, rows)
    elif rows != own.count(samples):
        raise ValueError(f"logits: {rows} rows; {own.count(samples)} of {samples} samples are rank {own.rank}'s")
    each, turns, chunks = _partition(rows, vocabulary)
    groups = -(-vocabulary * logits.element_size() // _GROUP_BYTES)
    results, maxima = (
        torch.empty((rows, size), dtype=torch.int32, device=logits.device) for size in (chunks * _RESULT_WORDS, groups)
    )
    of_samples = _addresses(step.header, step.sample_slots, step.sample_ends, step.counters, out[0], out[1], chosen)
    of_requests = _addresses(state.temperature, state.top_p, state.min_p, state.top_k, state.seeds, state.tokens)
    if rows:
        _sample()(
            logits.data_ptr(), logits.stride(0), rows, vocabulary, ctypes.addressof(of_samples),
            ctypes.addressof(of_requests), state.tokens.shape[1], own.rank, own.size, results.data_ptr(),
            maxima.data_ptr(), each, turns, _ctas(rows), code,
        )  # fmt: skip
    return out


def _checked(logits: torch.Tensor, step: Samples) -> int:
    if logits.stride(1) != 1 or logits.shape[1] > MOST_VOCABULARY:
        raise ValueError(f"logits: {tuple(logits.shape)}, strides {logits.stride()}; rows of at most {MOST_VOCABULARY}")
    for name in ("sample_slots", "sample_ends", "counters"):
        wants_int32(name, getattr(step, name), step.sample_slots.numel())
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


def _ctas(samples: int) -> int:
    """CTAs that share a filtered row: a power of two, more where few rows leave the device to each."""
    return next((ctas for ctas in (8, 4, 2) if ctas * samples <= 4 * _SMS), 1)


def _addresses(*tensors: torch.Tensor | None) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(tensors))(*(None if tensor is None else tensor.data_ptr() for tensor in tensors))
