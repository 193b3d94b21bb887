"""The command line of `octavo bench serve`."""

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.bench import options, plot, target
from octavo.bench.arithmetic.metrics import GOODPUT_NAMES, NAMES
from octavo.bench.arithmetic.report import Load
from octavo.bench.options import DatasetOptions, number, pair, whole
from octavo.bench.target import Target
from octavo.errors import UsageError

# Fields of a request's body, as flags.
SAMPLING: Mapping[str, Any] = {  # Any: argparse takes any parser of text
    "temperature": number(0),
    "top-p": number(0, 1, beyond=True),
    "top-k": whole(1, -1),
    "min-p": number(0, 1),
    "frequency-penalty": number(-2, 2),
    "presence-penalty": number(-2, 2),
    "repetition-penalty": number(0, beyond=True),
}


@dataclass(frozen=True, slots=True)
class Saving:
    """Where the result goes. detailed: with each request's figures. append: to a file that has others."""

    save: bool
    append: bool
    detailed: bool
    folder: Path | None
    filename: str | None
    label: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """extra: fields of every request's body. shown, shares: metrics and their percentiles. objectives: name -> ms."""

    target: Target
    tokenizer: Path | None
    dataset: DatasetOptions
    ignore_eos: bool
    extra: Mapping[str, Any]
    load: Load
    warmups: int
    ready_timeout_s: float
    shown: tuple[str, ...]
    shares: tuple[float, ...]
    objectives: Mapping[str, float]
    saving: Saving
    plot: Path | None
    quiet: bool


def parse(argv: list[str], environment: Mapping[str, str]) -> ServeOptions:
    """Raises UsageError; exits with 2 where one option alone is wrong."""
    args = _parser().parse_args(argv)
    dataset = options.dataset(args)
    if args.plot is not None:
        try:
            plot.check(args.plot)
        except plot.PlotError as error:
            raise UsageError(f"--plot: {error}") from error
    sampling = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in SAMPLING}
    return ServeOptions(
        target=target.target(args, environment),
        tokenizer=args.tokenizer,
        dataset=dataset,
        ignore_eos=args.ignore_eos or dataset.name == "random",
        extra={name: value for name, value in sampling.items() if value is not None} | (args.extra_body or {}),
        load=Load(args.request_rate, args.burstiness, args.max_concurrency),
        warmups=args.num_warmups,
        ready_timeout_s=args.ready_check_timeout_sec,
        shown=args.percentile_metrics,
        shares=args.metric_percentiles,
        objectives=dict(args.goodput or []),
        saving=_saving(args),
        plot=args.plot,
        quiet=args.disable_tqdm,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo bench serve",
        description="Load an OpenAI-compatible server and print what its streams took, as vLLM's benchmark does.",
        allow_abbrev=False,
    )
    target.add_target(parser)
    parser.add_argument("--tokenizer", type=Path, help="folder with a tokenizer.json (default: only the server counts)")
    options.add_dataset(parser)
    _add_traffic(parser)
    sampling = parser.add_argument_group("sampling (default: the server's)")
    for name, kind in SAMPLING.items():
        sampling.add_argument(f"--{name}", type=kind, help="field of every request")
    sampling.add_argument("--ignore-eos", action="store_true", help="answers of full length; implied by random prompts")
    sampling.add_argument("--extra-body", type=_object, metavar="JSON", help="further fields of every request")
    _add_results(parser)
    return parser


def _add_traffic(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("traffic")
    group.add_argument(
        "--request-rate", type=number(0, beyond=True, infinite=True), default=math.inf,
        help="requests a second (default: inf, all at once)",
    )  # fmt: skip
    group.add_argument(
        "--burstiness", type=number(0, beyond=True, infinite=True), default=1.0,
        help="shape of the gamma distribution of the pauses: 1, Poisson; less, burstier; more, evener",
    )  # fmt: skip
    group.add_argument("--max-concurrency", type=whole(1), help="requests under way at most")
    group.add_argument(
        "--ready-check-timeout-sec", type=number(0), default=0.0, metavar="S",
        help="send one request again and again, for so long, until it is answered (default: %(default)g, do not)",
    )  # fmt: skip
    group.add_argument("--num-warmups", type=whole(0), default=0, help="requests before the measured ones")
    group.add_argument("--disable-tqdm", action="store_true", help="show no progress")


def _add_results(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("results")
    group.add_argument(
        "--percentile-metrics", type=_names, default=NAMES[:3], metavar="NAMES",
        help=f"which to show, of {','.join(NAMES)} (default: {','.join(NAMES[:3])})",
    )  # fmt: skip
    group.add_argument(
        "--metric-percentiles", type=_shares, default=(99.0,), metavar="NUMBERS", help="such as 50,90,99 (default: 99)"
    )
    group.add_argument(
        "--goodput", type=_objective, nargs="+", action="extend", metavar="NAME:MS",
        help=f"objectives, of {', '.join(GOODPUT_NAMES)}: count the requests that meet them all",
    )  # fmt: skip
    group.add_argument("--save-result", action="store_true", help="write a JSON file")
    group.add_argument("--append-result", action="store_true", help="add a line to the JSON file")
    group.add_argument("--save-detailed", action="store_true", help="with the figures of each request")
    group.add_argument("--result-dir", type=Path, help="folder of the file, made if need be (default: this one)")
    group.add_argument("--result-filename", help="its name (default: LABEL-RATEqps-MODEL-TIME.json)")
    group.add_argument("--label", help="of the result (default: the backend)")
    group.add_argument(
        "--metadata", type=pair, nargs="+", action="extend", metavar="KEY=VALUE", help="added to the file"
    )
    group.add_argument("--plot", type=Path, help="draw latency over time and percentiles: out.png")


def _saving(args: argparse.Namespace) -> Saving:
    own = args.save_result, args.append_result, args.save_detailed
    for option in ("save_detailed", "result_dir", "result_filename", "metadata"):
        if getattr(args, option) and not (args.save_result or args.append_result):
            raise UsageError(f"--{option.replace('_', '-')}: has no effect without --save-result or --append-result")
    return Saving(*own, args.result_dir, args.result_filename, args.label, dict(args.metadata or []))


def _objective(text: str) -> tuple[str, float]:
    name, separator, limit = text.partition(":")
    if not separator or name not in GOODPUT_NAMES:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:MS with NAME one of {', '.join(GOODPUT_NAMES)}")
    return name, number(0)(limit)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if wrong := [name for name in names if name not in NAMES]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not one of {', '.join(NAMES)}")
    return names


def _shares(text: str) -> tuple[float, ...]:
    return tuple(dict.fromkeys(number(0, 100)(share.strip()) for share in text.split(",")))


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value
