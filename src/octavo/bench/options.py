"""What the commands share on their command lines: checked numbers, and the datasets with vLLM's names and defaults."""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.bench.arithmetic.datasets import RandomLengths, Repetition
from octavo.errors import UsageError

DATASETS = ("random", "sharegpt", "prefix_repetition", "custom")


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """lengths: of drawn datasets. path, output_len: of datasets from a file; output_len None: the file's."""

    name: str
    path: Path | None
    num_prompts: int
    seed: int
    shuffle: bool
    oversample: bool
    lengths: RandomLengths | Repetition
    output_len: int | None


def whole(low: int, also: int | None = None) -> Callable[[str], int]:
    """A whole number from `low`, or `also`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < low and value != also:
            raise argparse.ArgumentTypeError(f"{text} is below {low}")
        return value

    return parse


def number(
    low: float, high: float = math.inf, *, beyond: bool = False, infinite: bool = False
) -> Callable[[str], float]:
    """A number from `low` (beyond: above it) to `high`; infinite: inf is one."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if math.isnan(value) or (math.isinf(value) and not infinite):
            raise argparse.ArgumentTypeError(f"{text} is not a finite number")
        if value < low or value > high or (beyond and value == low):
            wanted = f"{'above' if beyond else 'at least'} {low:g}" + (
                f" and at most {high:g}" if high < math.inf else ""
            )
            raise argparse.ArgumentTypeError(f"{text} is not {wanted}")
        return value

    return parse


def below_one(text: str) -> float:
    """A range ratio."""
    value = number(0)(text)
    if value >= 1:
        raise argparse.ArgumentTypeError(f"{text} is not below 1")
    return value


def pair(text: str) -> tuple[str, str]:
    """KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def add_dataset(parser: argparse.ArgumentParser) -> None:
    """The options of `dataset`."""
    group = parser.add_argument_group("dataset")
    group.add_argument("--dataset-name", choices=DATASETS, default="random", help="default: %(default)s")
    group.add_argument("--dataset-path", type=Path, help="sharegpt: a JSON file; custom: lines of JSON with `prompt`")
    group.add_argument("--num-prompts", type=whole(1), default=1000, help="requests (default: %(default)s)")
    group.add_argument("--seed", type=whole(0), default=0, help="of all that is drawn (default: %(default)s)")
    group.add_argument("--input-len", type=whole(0), help="stands for --random-input-len")
    group.add_argument("--output-len", type=whole(1), help="stands for the output length of any dataset")
    group.add_argument("--disable-shuffle", action="store_true", help="keep the order of the dataset")
    group.add_argument("--no-oversample", action="store_true", help="rather fewer requests than the same ones again")
    _add_lengths(group)


def _add_lengths(group: "argparse._ArgumentGroup") -> None:
    shown = "tokens (default: %(default)s)"
    group.add_argument("--random-input-len", type=whole(0), default=1024, help=shown)
    group.add_argument("--random-output-len", type=whole(1), default=128, help=shown)
    group.add_argument(
        "--random-range-ratio", type=below_one, default=0.0, help="lengths vary from x (1 - ratio) to x (1 + ratio)"
    )
    group.add_argument(
        "--random-prefix-len", type=whole(0), default=0, help="tokens that all prompts begin with, on top of their own"
    )
    group.add_argument("--prefix-repetition-prefix-len", type=whole(0), default=256, help=shown)
    group.add_argument("--prefix-repetition-suffix-len", type=whole(1), default=256, help=shown)
    group.add_argument("--prefix-repetition-num-prefixes", type=whole(1), default=10, help="default: %(default)s")
    group.add_argument("--prefix-repetition-output-len", type=whole(1), default=128, help=shown)
    group.add_argument(
        "--sharegpt-output-len", type=whole(1), help="tokens (default: the length of each answer in the file)"
    )
    group.add_argument(
        "--custom-output-len", type=whole(1, -1), default=256, help=f"{shown}; -1: each record's `output_tokens`"
    )


def dataset(args: argparse.Namespace) -> DatasetOptions:
    """Raises UsageError."""
    name = args.dataset_name
    drawn = name in ("random", "prefix_repetition")
    if drawn and args.dataset_path is not None:
        raise UsageError(f"--dataset-path: --dataset-name {name} reads no file; name sharegpt or custom")
    if not drawn and args.dataset_path is None:
        raise UsageError(f"--dataset-path: needed for --dataset-name {name}")
    if args.input_len is not None and name != "random":
        raise UsageError(f"--input-len: has no effect on --dataset-name {name}")
    own = {"sharegpt": args.sharegpt_output_len, "custom": args.custom_output_len}.get(name)
    output = args.output_len if args.output_len is not None else own
    return DatasetOptions(
        name=name,
        path=args.dataset_path,
        num_prompts=args.num_prompts,
        seed=args.seed,
        shuffle=not args.disable_shuffle,
        oversample=not args.no_oversample,
        lengths=_lengths(args),
        output_len=None if output == -1 else output,
    )


def _lengths(args: argparse.Namespace) -> RandomLengths | Repetition:
    if args.dataset_name == "prefix_repetition":
        return Repetition(
            args.prefix_repetition_prefix_len,
            args.prefix_repetition_suffix_len,
            args.prefix_repetition_num_prefixes,
            args.prefix_repetition_output_len if args.output_len is None else args.output_len,
        )
    return RandomLengths(
        args.random_input_len if args.input_len is None else args.input_len,
        args.random_output_len if args.output_len is None else args.output_len,
        args.random_range_ratio,
        args.random_prefix_len,
    )
