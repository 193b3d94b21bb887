"""Requests out of nothing but lengths, or out of records. Pure: files and tokenizers are read elsewhere.

Random tokens are drawn one by one, evenly, so that no two prompts share a beginning that a prefix cache could keep,
but for the prefix that was asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from random import Random
from typing import Protocol, TypeVar

from octavo.errors import OctavoError

T = TypeVar("T")
Count = Callable[[str], int]  # tokens of a text

# ShareGPT's records are kept within these, in tokens, so that the load is that of vLLM's benchmark.
FEWEST, LONGEST_PROMPT, LONGEST = 4, 1024, 2048


class DatasetError(OctavoError):
    """Records or lengths from which no requests can be made; the message names the option."""


@dataclass(frozen=True, slots=True)
class Request:
    """prompt: text or token ids. prompt_tokens: None where only the server can count them. output_tokens: at most."""

    prompt: str | list[int]
    prompt_tokens: int | None
    output_tokens: int


@dataclass(frozen=True, slots=True)
class RandomLengths:
    """Tokens. Input and output are drawn from length x (1 - range_ratio) to length x (1 + range_ratio), both ends
    included; the prefix, which all prompts share, comes on top."""

    input_len: int
    output_len: int
    range_ratio: float
    prefix_len: int


@dataclass(frozen=True, slots=True)
class Repetition:
    """Tokens; each of num_prefixes prefixes is followed by equally many different suffixes."""

    prefix_len: int
    suffix_len: int
    num_prefixes: int
    output_len: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The first question of a conversation and its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Record:
    """A prompt of a file; output_tokens where the file says how many."""

    prompt: str
    output_tokens: int | None


class Writer(Protocol):
    """Makes prompts of exact lengths: ids as they are, or text that encodes to as many."""

    def draw(self, count: int, source: Random) -> list[int]:
        """That many ids."""

    def prompt(self, ids: list[int], source: Random) -> str | list[int]:
        """A prompt of exactly len(ids) tokens which begins as the ids do. Raises DatasetError."""


def random_requests(lengths: RandomLengths, count: int, writer: Writer, source: Random) -> list[Request]:
    """Raises DatasetError where a prompt could become empty."""
    shortest, longest = _range(lengths.input_len, lengths.range_ratio)
    fewest, most = _range(lengths.output_len, lengths.range_ratio)
    if lengths.prefix_len + shortest < 1:
        raise DatasetError(
            f"--random-input-len: {lengths.input_len} with --random-range-ratio {lengths.range_ratio} gives empty "
            "prompts"
        )
    prefix = writer.draw(lengths.prefix_len, source)
    requests = []
    for _ in range(count):
        ids = prefix + writer.draw(source.randint(shortest, longest), source)
        output = source.randint(max(1, fewest), max(1, most))
        requests.append(Request(writer.prompt(ids, source), len(ids), output))
    return requests


def _range(length: int, ratio: float) -> tuple[int, int]:
    return floor(length * (1 - ratio)), ceil(length * (1 + ratio))


def repeated_prefixes(lengths: Repetition, count: int, writer: Writer, source: Random, shuffle: bool) -> list[Request]:
    """As many for each prefix, so up to num_prefixes - 1 fewer than `count`, as vLLM makes them."""
    each = count // lengths.num_prefixes
    if each == 0:
        raise DatasetError(
            f"--num-prompts: {count} is less than --prefix-repetition-num-prefixes {lengths.num_prefixes}"
        )
    requests = []
    for _ in range(lengths.num_prefixes):
        prefix = writer.draw(lengths.prefix_len, source)
        for _ in range(each):
            ids = prefix + writer.draw(lengths.suffix_len, source)
            requests.append(Request(writer.prompt(ids, source), len(ids), lengths.output_len))
    if shuffle:
        source.shuffle(requests)
    return requests


def conversations(
    turns: Sequence[Turn], count: int, output_len: int | None, tokens: Count | None, source: Random, shuffle: bool
) -> list[Request]:
    """The first `count` that are neither too short nor too long. output_len: for all, else that of each answer.

    Without `tokens` no length is known: none is left out, and output_len must be given.
    """
    requests: list[Request] = []
    for turn in _shuffled(turns, source, shuffle):
        if len(requests) == count:
            break
        if tokens is None:
            if output_len is None:
                raise DatasetError("--sharegpt-output-len: needed where no --tokenizer counts the answers' tokens")
            requests.append(Request(turn.question, None, output_len))
            continue
        asked = tokens(turn.question)
        answered = tokens(turn.answer) if output_len is None else output_len
        short = asked < FEWEST or (output_len is None and answered < FEWEST)
        if not short and asked <= LONGEST_PROMPT and asked + answered <= LONGEST:
            requests.append(Request(turn.question, asked, answered))
    return requests


def prompts(
    records: Sequence[Record], count: int, output_len: int | None, tokens: Count | None, source: Random, shuffle: bool
) -> list[Request]:
    """output_len: for all; None: what each record says. Raises DatasetError where one says nothing."""
    requests = []
    for record in _shuffled(records, source, shuffle)[:count]:
        output = record.output_tokens if output_len is None else output_len
        if output is None:
            raise DatasetError("--custom-output-len: -1, but a record of --dataset-path has no output_tokens")
        requests.append(Request(record.prompt, None if tokens is None else tokens(record.prompt), output))
    return requests


def oversampled(requests: Sequence[Request], count: int, source: Random) -> list[Request]:
    """Filled up to `count` with requests drawn again. requests: at least one."""
    missing = count - len(requests)
    return [*requests, *source.choices(requests, k=missing)] if missing > 0 else list(requests)


def _shuffled(items: Sequence[T], source: Random, shuffle: bool) -> list[T]:
    ordered = list(items)
    if shuffle:
        source.shuffle(ordered)
    return ordered
