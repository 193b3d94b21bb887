"""A run as one picture: latency over time, and every percentile of each metric."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.bench.arithmetic.metrics import Answer, percentiles, samples
from octavo.errors import OctavoError

if TYPE_CHECKING:  # only `--plot` pays for the import
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
INCHES, DOTS = (14.0, 6.0), 100  # 1,400 x 600 pixels
SHARES = [share / 10 for share in range(0, 1001, 5)]
COLOURS = {"ttft": "tab:blue", "tpot": "tab:orange", "itl": "tab:green", "e2el": "tab:red"}


class PlotError(OctavoError):
    """The picture cannot be drawn or written; the message has the remedy."""


def check(path: Path) -> None:
    """Before the run, so that none is measured in vain. Raises PlotError."""
    if find_spec("matplotlib") is None:
        raise PlotError("the Python package 'matplotlib' is missing; install octavo[bench]")
    if path.suffix.lower() not in FORMATS:
        raise PlotError(f"{path}: the name must end with one of {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise PlotError(f"{path.parent}: no such folder")


def draw(answers: Sequence[Answer], title: str, path: Path) -> None:
    """Writes the picture; the format is that of the name's ending. Raises PlotError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    complete = [answer for answer in answers if not answer.error]
    figure = Figure(figsize=INCHES, dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)  # no display is needed
    figure.suptitle(title)
    over_time = figure.add_subplot(1, 2, 1)
    by_share = figure.add_subplot(1, 2, 2)
    _over_time(over_time, complete, [answer.start_s for answer in answers if answer.error])
    _by_share(by_share, complete)
    try:
        figure.savefig(path)
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}") from error


def _over_time(axes: "Axes", complete: Sequence[Answer], failed_s: Sequence[float]) -> None:
    starts = [answer.start_s for answer in complete]
    for name, values in samples(complete).items():
        if name in ("ttft", "e2el") and values:
            axes.scatter(starts, [1e3 * value for value in values], s=8, color=COLOURS[name], label=name.upper())
    for at in failed_s:
        axes.axvline(at, color="grey", linewidth=0.5)
    _label(axes, "Latency over time (grey: failed requests)", "request sent at (s)")


def _by_share(axes: "Axes", complete: Sequence[Answer]) -> None:
    for name, values in samples(complete).items():
        if any(values):
            figures = [1e3 * value for value in percentiles(values, SHARES)]
            axes.plot(SHARES, figures, color=COLOURS[name], label=name.upper())
    _label(axes, "Percentiles", "percentile")


def _label(axes: "Axes", title: str, horizontal: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(horizontal)
    axes.set_ylabel("ms")
    axes.grid(True, which="both", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:  # nothing was drawn where every request failed
        axes.set_yscale("log", nonpositive="clip")  # gaps of 0 ms, of chunks that came in one read, lie below it
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend()
