"""Log-probabilities of the tokens that follow rows of logits, and of the likeliest: csrc/sampling/logprobs.cu.

    log p(v) = (logits[v] - best) - log(sum of exp(logits - best))       in float32; -9999 where it would be -infinity

The likeliest are in the order of their logits, of equal ones by id.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from octavo.kernels.cuda.checks import dtype_code, wants_int32
from octavo.kernels.cuda.library import INT, LONG, POINTER, function
from octavo.kernels.cuda.sampling.sample import ALL_SAMPLES, MOST_VOCABULARY, OwnSamples
from octavo.kernels.cuda.step_layout.changes import Words

ASKED_WORDS = 4
_SPAN, _SHARE_WORDS = 4096, 4  # of csrc/sampling/logprobs.cu: ids of a CTA, words of a Share


class Asked(NamedTuple):
    """A row of the logits, and where the token after it stands: at `position` of `slot`. place: of its result."""

    row: int
    slot: int
    position: int
    place: int


AskedWords = tuple[int, int, int, int]  # an Asked, or its fields


def pack_asked(asked: Sequence[AskedWords]) -> Words:
    """[asked * 4] words."""
    return np.fromiter(chain.from_iterable(asked), np.int32, len(asked) * ASKED_WORDS)


def pack_prompt(slot: int, first: int, count: int, each: int, own: OwnSamples = ALL_SAMPLES) -> Words:
    """The same for the tokens of `slot` from position `first` on, when `each` rows of logits are made at a time, of
    which a rank has some; for these alone."""
    places = np.arange(count)
    rows = places % each
    mine = rows % own.size == own.rank
    packed: Words = np.stack((rows // own.size, np.full(count, slot), first + places, places), axis=1, dtype=np.int32)
    words: Words = packed[mine].reshape(-1)
    return words


def result_words(top: int) -> int:
    """Of one result: whether the logits were finite, the token's rank from 1, ids (the token's, then `top` of the
    likeliest), then their log-probabilities as the bits of floats."""
    return 2 + 2 * (1 + top)


@cache
def _logprobs() -> Callable[..., None]:
    sizes = (POINTER, LONG, INT, POINTER, INT, POINTER, INT, INT, POINTER, POINTER, POINTER, INT)
    return function("logprobs", "octavo_logprobs", *sizes)


def logprobs(logits: torch.Tensor, asked: torch.Tensor, tokens: torch.Tensor, top: int, results: torch.Tensor) -> None:
    """results [places, result_words(top)] int32 has the results for `asked` [4 n] int32, what pack_asked made, on the
    device, each in its place.

    logits: [?, V], rows apart or not. tokens: [slots, context] int32. top: at most V.
    """
    count, vocabulary = asked.numel() // ASKED_WORDS, logits.shape[1]
    code = dtype_code("logits", logits)
    wants_int32("results", results, results.shape[0], result_words(top))
    wants_int32("asked", asked, ASKED_WORDS * count)
    wants_int32("tokens", tokens, *tokens.shape)
    if logits.stride(1) != 1 or not top <= vocabulary <= MOST_VOCABULARY:
        text = f"rows of {top} (top) to {MOST_VOCABULARY}"
        raise ValueError(f"logits: {tuple(logits.shape)}, strides {logits.stride()}; wanted {text}")
    if asked.data_ptr() % 16:
        raise ValueError(f"asked: at {asked.data_ptr():#x}; wanted aligned to 16 bytes")
    chunks = -(-vocabulary // _SPAN)
    shares = torch.empty((count, chunks, _SHARE_WORDS), dtype=torch.int32, device=logits.device)
    lists = torch.empty((count, chunks, top), dtype=torch.int64, device=logits.device)
    if count:
        _logprobs()(
            logits.data_ptr(), logits.stride(0), vocabulary, asked.data_ptr(), count, tokens.data_ptr(),
            tokens.shape[1], top, shares.data_ptr(), lists.data_ptr(), results.data_ptr(), code,
        )  # fmt: skip
