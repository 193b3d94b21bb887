"""From the options of a dataset to the requests of a run and its warm-up."""

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from octavo.bench.arithmetic import datasets
from octavo.bench.arithmetic.datasets import DatasetError, RandomLengths, Record, Repetition, Request, Turn, Writer
from octavo.bench.options import DatasetOptions
from octavo.bench.tokenizer import UNKNOWN, Ids, Tokens, Words


@dataclass(frozen=True, slots=True)
class Workload:
    """warmups: made like the requests, but none of them where the dataset is drawn: they must not warm their cache."""

    requests: list[Request]
    warmups: list[Request]


def workload(options: DatasetOptions, tokens: Tokens | None, warmups: int, as_text: bool) -> Workload:
    """as_text: drawn prompts are text instead of ids. warmups: how many. Raises DatasetError."""
    if options.name in ("random", "prefix_repetition"):
        writer = _writer(tokens, as_text, options.seed)
        lengths = options.lengths
        apart = Random(f"warm-up {options.seed}")
        if isinstance(lengths, Repetition):
            alike = RandomLengths(lengths.prefix_len + lengths.suffix_len, lengths.output_len, 0.0, 0)
        else:
            alike = RandomLengths(lengths.input_len + lengths.prefix_len, lengths.output_len, 0.0, 0)
        return Workload(_drawn(options, writer), datasets.random_requests(alike, warmups, writer, apart))
    requests = _read(options, tokens)
    return Workload(requests, [requests[turn % len(requests)] for turn in range(warmups)])


def _writer(tokens: Tokens | None, as_text: bool, seed: int) -> Writer:
    if not as_text:
        return Ids(UNKNOWN if tokens is None else tokens.ids)
    if tokens is None:
        raise DatasetError("--tokenizer: needed to write chat messages of a given number of tokens")
    return Words(tokens, Random(f"words {seed}"))


def _drawn(options: DatasetOptions, writer: Writer) -> list[Request]:
    source, count = Random(options.seed), options.num_prompts
    if isinstance(options.lengths, Repetition):
        return datasets.repeated_prefixes(options.lengths, count, writer, source, options.shuffle)
    return datasets.random_requests(options.lengths, count, writer, source)


def _read(options: DatasetOptions, tokens: Tokens | None) -> list[Request]:
    if options.path is None:
        raise DatasetError(f"--dataset-path: needed for --dataset-name {options.name}")
    source, count = Random(options.seed), options.num_prompts
    counter = None if tokens is None else tokens.count
    if options.name == "sharegpt":
        turns = read_sharegpt(options.path)
        found = datasets.conversations(turns, count, options.output_len, counter, source, options.shuffle)
    else:
        records = read_custom(options.path)
        found = datasets.prompts(records, count, options.output_len, counter, source, options.shuffle)
    if not found:
        raise DatasetError(f"--dataset-path {options.path}: holds nothing that could be asked")
    return datasets.oversampled(found, count, source) if options.oversample else found


def read_sharegpt(path: Path) -> list[Turn]:
    """A JSON list of {"conversations": [{"value": question}, {"value": answer}, ...]}; shorter ones are passed over."""
    entries = _json(path, _text(path))
    if not isinstance(entries, list):
        raise DatasetError(f"--dataset-path {path}: expected a JSON list of conversations")
    turns = []
    for number, entry in enumerate(entries):
        messages = entry.get("conversations") if isinstance(entry, dict) else None
        if not isinstance(messages, list) or len(messages) < 2:
            continue
        values = [turn.get("value") if isinstance(turn, dict) else None for turn in messages[:2]]
        if not all(isinstance(value, str) for value in values):
            raise DatasetError(f"--dataset-path {path}: entry {number}: a turn has no text in `value`")
        turns.append(Turn(str(values[0]), str(values[1])))
    return turns


def read_custom(path: Path) -> list[Record]:
    """Lines of {"prompt": text, "output_tokens": number}; output_tokens is optional."""
    records = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        record = _json(path, line, f"line {number}: ")
        prompt = record.get("prompt") if isinstance(record, dict) else None
        if not isinstance(prompt, str) or not prompt:
            raise DatasetError(f"--dataset-path {path}: line {number}: expected an object with text in `prompt`")
        output = record.get("output_tokens")
        if output is not None and (type(output) is not int or output < 1):
            raise DatasetError(f"--dataset-path {path}: line {number}: output_tokens must be a number from 1")
        records.append(Record(prompt, output))
    return records


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"--dataset-path {path}: {getattr(error, 'strerror', None) or error}") from error


def _json(path: Path, text: str, where: str = "") -> Any:  # Any: JSON
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DatasetError(f"--dataset-path {path}: {where}not JSON: {error}") from error
