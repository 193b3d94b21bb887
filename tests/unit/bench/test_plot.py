"""A picture is drawn of any run, and goes nowhere but where it can be written."""

from pathlib import Path

import pytest

from octavo.bench import plot
from octavo.bench.arithmetic.metrics import Answer

ONE = Answer(start_s=0.5, ttft_s=0.1, gaps_s=(0.0, 0.02), latency_s=0.12, output_tokens=3)
AT_ONCE = Answer(start_s=0.0, ttft_s=0.1, gaps_s=(0.0, 0.0), latency_s=0.1, output_tokens=3)
SINGLE = Answer(start_s=0.1, ttft_s=0.1, latency_s=0.1, output_tokens=1)
FAILED = Answer(start_s=0.2, error="gone")


@pytest.mark.parametrize("answers", [[ONE, SINGLE, FAILED], [AT_ONCE], [SINGLE], [FAILED], [ONE] * 300])
def test_any_run_makes_a_picture(tmp_path: Path, answers: list[Answer]) -> None:
    plot.draw(answers, "a model", tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_the_names_ending_is_the_format(tmp_path: Path, suffix: str, begins: bytes) -> None:
    path = tmp_path / f"out{suffix}"
    plot.check(path)
    plot.draw([ONE], "a model", path)
    assert path.read_bytes().startswith(begins)


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(plot.PlotError, match=r"out\.png"):
        plot.draw([ONE], "a model", tmp_path / "gone" / "out.png")
    (tmp_path / "out.png").mkdir()
    with pytest.raises(plot.PlotError, match=r"out\.png"):
        plot.draw([ONE], "a model", tmp_path / "out.png")
