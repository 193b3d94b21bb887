"""A port that a test gives to a process has no other user, in this run of tests or in one beside it."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import ports

SUPPORT = Path(ports.__file__).parents[2]
DRAW_ALL = (
    "from support.processes import ports; ports._PORTS = range({}, {}); print(*[ports.free_port() for _ in range({})])"
)


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 40))
    assert first not in {ports.free_port() for _ in range(20)}


def test_a_run_beside_this_one_is_given_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 40))
    mine = {first, *(ports.free_port() for _ in range(15))}
    drawing = DRAW_ALL.format(first, first + 40, 15)
    other = subprocess.run([sys.executable, "-c", drawing], cwd=SUPPORT, capture_output=True, text=True, check=True)
    theirs = {int(port) for port in other.stdout.split()}
    assert len(theirs) == 15
    assert not mine & theirs
