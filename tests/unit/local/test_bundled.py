"""The one conversion of the bundled model shows on a terminal that it goes on, and says nothing elsewhere."""

import io
import time

import pytest

from octavo import bundled


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_reading_and_converting_both_move_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with bundled.terminal_progress() as show:
        time.sleep(0.7)  # the file is read: its progress is not known
        reading = {line for line in screen.getvalue().split("\r") if "reading" in line}
        show(50)
        time.sleep(0.3)
        show(100)
    assert len(reading) > 1, screen.getvalue()
    after = screen.getvalue()
    assert "converting" in after and "100%" in after and "reading" not in after.rpartition("50%")[2]


def test_an_error_ends_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(bundled.BundledError), bundled.terminal_progress():
        raise bundled.BundledError("no package")
    shown = screen.getvalue()
    time.sleep(0.4)
    assert screen.getvalue() == shown


def test_elsewhere_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with bundled.terminal_progress() as show:
        show(100)
    assert capsys.readouterr().err == ""
