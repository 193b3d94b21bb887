"""A bound counts the seconds in which the machine had a CPU for everybody; about others it is patient, not for ever."""

import pytest
from support import patience
from support.patience import PATIENCE_S, Bound, SlowMachine


class Clocks:
    """A machine on which time passes as a test says."""

    def __init__(self) -> None:
        self.now_s, self.stalled_s = 100.0, 7.0

    def monotonic(self) -> float:
        return self.now_s

    def read_text(self) -> str:
        return f"some avg10=99.36 avg60=98.91 avg300=75.13 total={self.stalled_s * 1e6:.0f}\nfull avg10=0.00 total=3\n"


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(patience, "time", clocks)
    monkeypatch.setattr(patience, "_PRESSURE", clocks)
    return clocks


def test_calm_seconds_count(clocks: Clocks) -> None:
    bound = Bound(4.0)
    clocks.now_s += 3.9
    assert not bound.over and bound.kept() == pytest.approx(3.9)
    clocks.now_s += 0.2
    assert bound.over


def test_seconds_without_a_free_cpu_do_not_count_and_are_reported(clocks: Clocks) -> None:
    bound = Bound(4.0)
    clocks.now_s += 30.0
    clocks.stalled_s += 27.0
    assert not bound.over
    with pytest.warns(SlowMachine, match="30.0 s where 4 s are the bound"):
        bound.kept()
    clocks.now_s += 1.1
    assert bound.over


def test_patience_ends(clocks: Clocks) -> None:
    bound = Bound(4.0)
    clocks.now_s += 4.1 + PATIENCE_S
    clocks.stalled_s += 4.1 + PATIENCE_S
    assert bound.over


def test_a_kernel_that_does_not_tell_makes_every_second_count(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(patience, "_PRESSURE", tmp_path / "none")
    bound = Bound(4.0)
    clocks.now_s += 4.1
    assert bound.over
