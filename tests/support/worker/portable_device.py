"""The kernels that serve sampling fields, in PyTorch on the CPU: they read the words that were packed for them."""

import ctypes

import numpy as np
import torch

from octavo.kernels.cuda.sampling.adjust import HEADER_WORDS, NO_MASK, ROW_WORDS
from octavo.kernels.cuda.sampling.logprobs import ASKED_WORDS
from octavo.kernels.cuda.sampling.sample import ALL_SAMPLES, OwnSamples, Samples
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Masks
from octavo.worker.runner.cpu import logprobs as cpu
from octavo.worker.runner.cpu import sampler
from octavo.worker.runner.cpu.logits_processors import AdjustedRow, Columns, RowChanges, adjust_
from octavo.worker.runner.cpu.masks import bind
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary

UNTOUCHED = -5


def upload_words(words: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(words.copy())


def download_words(words: torch.Tensor) -> torch.Tensor:
    return words.clone()


def adjust(
    logits: torch.Tensor,
    rows: torch.Tensor,
    tokens: torch.Tensor,
    masks: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    table = rows.view(-1, ROW_WORDS)
    assert table.shape[0] == out.shape[0]
    for index, (row, slot, end, mask, *address) in enumerate(table[:, :6].tolist()):
        changed = out[index : index + 1]
        changed.copy_(logits[row])
        if mask != NO_MASK:
            assert masks is not None
            bind(changed, [0], Masks(0, masks[mask].numpy().tobytes()), 0)
        low, high = (word & 0xFFFFFFFF for word in address)
        if low or high:
            prompt, how = read_changes(low | high << 32)
            known = tokens[slot, :end].long()
            adjust_(changed, [AdjustedRow(0, RowChanges(how, Columns(0, out.shape[1])), known, end - prompt)])


def read_changes(address: int) -> tuple[int, SamplingParams]:
    """(tokens of the prompt, the rest) of what pack_changes_of_logits has packed, which lies at `address`."""
    header = _words(address, HEADER_WORDS)
    prompt, min_tokens, forbidden, biases, words, word_ids, bits = header[:7].tolist()
    sizes = (forbidden, biases, biases, words, word_ids, bits)
    rest = _words(address + 4 * HEADER_WORDS, sum(sizes))
    never, biased, values, ends, ids, allowed = np.split(rest, np.cumsum(sizes)[:-1])
    flags = np.unpackbits(allowed.view(np.uint8), bitorder="little")
    repetition, presence, frequency = header[7:10].view(np.float32).tolist()
    return prompt, SamplingParams(
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        logit_bias=tuple(zip(biased.tolist(), values.view(np.float32).tolist(), strict=True)),
        allowed_token_ids=tuple(flags.nonzero()[0].tolist()),
        bad_words=tuple(tuple(word.tolist()) for word in np.split(ids, ends[:-1])) if words else (),
        min_tokens=min_tokens,
        forbidden=tuple(never.tolist()),
    )


def _words(address: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_int32 * count).from_address(address)) if count else np.empty(0, np.int32)


def sample(
    logits: torch.Tensor,
    step: Samples,
    state: DeviceState,
    out: torch.Tensor | None = None,
    own: OwnSamples = ALL_SAMPLES,
    chosen: torch.Tensor | None = None,
) -> torch.Tensor:
    samples = step.sample_slots.numel()
    out = torch.full((2, samples), UNTOUCHED, dtype=torch.int32) if out is None else out
    entries = torch.arange(own.rank, samples, own.size) if chosen is None else chosen.long()
    assert step.header[3] == samples and len(logits) == len(entries)
    if not len(entries):
        return out
    slots = step.sample_slots[entries].long()
    names = ("temperature", "top_k", "top_p", "seeds")
    temperature, top_k, top_p, seeds = (getattr(state, name)[slots] for name in names)
    draw = Draw(temperature, top_k.long(), top_p, seeds, step.counters[entries].long(), state.min_p[slots])
    ids, finite = sampler.sample(logits.float(), draw, Vocabulary(logits.shape[1]))
    state.tokens[slots, step.sample_ends[entries].long()] = ids.int()
    out[0, entries], out[1, entries] = ids.int(), (~finite).int()
    return out


def logprobs(logits: torch.Tensor, asked: torch.Tensor, tokens: torch.Tensor, top: int, results: torch.Tensor) -> None:
    if not asked.numel():
        return
    rows, slots, positions, places = asked.view(-1, ASKED_WORDS).long().unbind(1)
    ids = tokens[slots, positions].long()
    found = cpu.logprobs(logits[rows].float(), ids, top, Vocabulary(logits.shape[1]))
    results[places, 0] = found.finite.int()
    for row, place in enumerate(places):
        results[place, 1:] = torch.from_numpy(np.frombuffer(found.pack(row, top), np.int32).copy())
