"""What a child says before it exits arrives whole, whatever it is written in."""

import os

import pytest

from octavo.shared.failure_reasons import FailureReason
from octavo.worker.errors import ConfigError, Fault, KernelsMissing, ModelError
from octavo.worker.ipc.process import Report, cause, read_report, write_report


def through_a_pipe(report: Report) -> Report | None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    try:
        write_report(writing, report)
        return read_report(reading)
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("text", ["short", "füchse", 'a\nb"c\\', "\x00", "日本", "🦊"])
def test_a_message_is_reported_as_it_is(text: str) -> None:
    assert through_a_pipe(Report("RankFailed", text)) == Report("RankFailed", text)


@pytest.mark.parametrize("letter", ["a", "ü", "日", "🦊", "\x00", '"', "\ud800"])
def test_a_long_message_loses_its_end_and_nothing_else(letter: str) -> None:
    said = through_a_pipe(Report("RankFailed", f"config.json: {letter * 10_000}"))
    assert said is not None and said.reason == "RankFailed"
    assert said.message.startswith("config.json: ") and len(said.message) > 600
    assert set(said.message.removeprefix("config.json: ")) <= {letter, "?"}


def test_a_child_that_said_nothing_has_no_report() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    assert read_report(reading) is None
    os.close(writing)
    assert read_report(reading) is None
    os.close(reading)


def test_only_reasons_of_our_own_reach_the_status() -> None:
    assert cause("rank", Fault(FailureReason.RANK_STUCK, "late")) == Report("RankStuck", "late")
    assert cause("rank", ConfigError("no")) == Report("ConfigInvalid", "no")
    assert cause("rank", ModelError(FailureReason.MODEL_INVALID, "a", "b")) == Report("ModelInvalid", "a: b")
    assert cause("rank", KernelsMissing("x.so: no such file")) == Report("KernelsMissing", "x.so: no such file")
    assert cause("core", UnicodeDecodeError("utf-8", b"", 0, 1, "invalid start byte")).reason == "CoreFailed"
    assert cause("serve", MemoryError()) == Report("ServeFailed", "MemoryError")
