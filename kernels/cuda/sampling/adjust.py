"""Changes of some rows of the logits before the draw: csrc/sampling/adjust.cu.

worker/runner/cpu/logits_processors.py lists the changes and their order.

A request's changes go to the device once, as one tensor of int32 words; a step names rows and points to them:

    prompt, min_tokens, forbidden, biases, bad words, their ids, words of allowed, 3 penalties, 0 ...   16 words
    forbidden ids | biased ids | their values | ends of the bad words | ids of the bad words | bits of allowed ids

Sizes stand for counts, floats for their bits; the end of a bad word is that among the ids of all.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import torch

from octavo.kernels.cuda.checks import dtype_code, wants_int32
from octavo.kernels.cuda.library import INT, LONG, POINTER, function
from octavo.kernels.cuda.step_layout.changes import Words

HEADER_WORDS = 16
ROW_WORDS = 8
NO_MASK = -1
_VECTOR = 4  # floats of one access


class LogitsChanges(NamedTuple):
    """The changes of one request's logits; each default changes nothing. prompt: how many of its tokens are its
    prompt's.

    forbidden: ids that are not drawn before min_tokens are generated. logit_bias: (id, what is added). bad_words: ids
    of each. allowed_token_ids: no others are drawn; none: all are.
    """

    prompt: int
    min_tokens: int = 0
    forbidden: Sequence[int] = ()
    logit_bias: Sequence[tuple[int, float]] = ()
    bad_words: Sequence[Sequence[int]] = ()
    allowed_token_ids: Sequence[int] = ()
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


class Row(NamedTuple):
    """One row to change. row: of the logits; end: tokens known of the request in `slot`. mask: its row of the masks.

    address: of its packed changes on the device; 0: it has none.
    """

    row: int
    slot: int
    end: int
    mask: int = NO_MASK
    address: int = 0


RowWords = tuple[int, int, int, int, int]  # a Row, or its fields


def pack_changes_of_logits(changes: LogitsChanges, vocabulary: int) -> Words:
    """One buffer for the device. Ids are below `vocabulary`; no id has two biases."""
    ends = list(accumulate(map(len, changes.bad_words)))
    word_ids = list(chain.from_iterable(changes.bad_words))
    allowed = changes.allowed_token_ids
    bits = _bits(allowed, vocabulary) if allowed else np.empty(0, np.int32)
    penalties = (changes.repetition_penalty, changes.presence_penalty, changes.frequency_penalty)
    header = np.zeros(HEADER_WORDS, np.int32)
    header[:7] = (
        changes.prompt, changes.min_tokens, len(changes.forbidden), len(changes.logit_bias), len(ends), len(word_ids),
        len(bits),
    )  # fmt: skip
    header[7:10] = np.array(penalties, np.float32).view(np.int32)
    values = np.array([value for _, value in changes.logit_bias], np.float32).view(np.int32)
    ids = [token for token, _ in changes.logit_bias]
    parts = (changes.forbidden, ids, values, ends, word_ids, bits)
    return np.concatenate((header, *(np.asarray(part, np.int32) for part in parts)))


def _bits(ids: Sequence[int], vocabulary: int) -> Words:
    """In whole words: id i is in bit i % 32 of word i // 32."""
    flags = np.zeros(-(-vocabulary // 32) * 32, np.uint8)
    flags[list(ids)] = 1
    return np.packbits(flags, bitorder="little").view(np.int32)


def pack_rows(rows: Sequence[RowWords]) -> Words:
    """[rows * 8] words."""
    packed = np.zeros((len(rows), ROW_WORDS), np.int32)
    if rows:
        table = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(Row._fields)).reshape(len(rows), -1)
        packed[:, :4] = table[:, :4]
        packed[:, 4:6] = np.ascontiguousarray(table[:, 4]).view(np.int32).reshape(-1, 2)
    return packed.reshape(-1)


def new_rows(rows: int, vocabulary: int, device: torch.device | str) -> torch.Tensor:
    """[rows, vocabulary] float32 for `adjust`, each row where it can be read fast."""
    width = -(-vocabulary // _VECTOR) * _VECTOR
    return torch.empty((rows, width), dtype=torch.float32, device=device)[:, :vocabulary]


@cache
def _adjust() -> Callable[..., None]:
    sizes = (POINTER, LONG, INT, POINTER, INT, POINTER, INT, POINTER, INT, POINTER, LONG, INT)
    return function("adjust", "octavo_adjust", *sizes)


def adjust(
    logits: torch.Tensor,
    rows: torch.Tensor,
    tokens: torch.Tensor,
    masks: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """out [n, V] float32 becomes the rows of logits [?, V] that `rows` names, changed; logits stay as they are.

    rows: [8 n] int32, what pack_rows made, on the device; what its addresses point to must live until this has run.
    tokens: [slots, context] int32. masks: [m, words] int32, a row of bits for each bound row; ids beyond them are
    forbidden.
    """
    count, vocabulary = out.shape
    code = dtype_code("logits", logits)
    wants_int32("rows", rows, ROW_WORDS * count)
    wants_int32("tokens", tokens, *tokens.shape)
    if logits.shape[1] != vocabulary or logits.stride(1) != 1:
        raise ValueError(f"logits: {tuple(logits.shape)}, strides {logits.stride()}; wanted rows of {vocabulary}")
    if out.dtype != torch.float32 or out.stride(1) != 1:
        raise ValueError(f"out: {out.dtype}, strides {out.stride()}; wanted rows of float32")
    if rows.data_ptr() % 16:
        raise ValueError(f"rows: at {rows.data_ptr():#x}; wanted aligned to 16 bytes")
    if masks is not None:
        wants_int32("masks", masks, *masks.shape)
    if count:
        _adjust()(
            logits.data_ptr(), logits.stride(0), vocabulary, rows.data_ptr(), count, tokens.data_ptr(), tokens.shape[1],
            None if masks is None else masks.data_ptr(), 0 if masks is None else masks.shape[1],
            out.data_ptr(), out.stride(0), code,
        )  # fmt: skip
