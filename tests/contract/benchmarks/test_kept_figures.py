"""What a benchmark has measured is in its file, whichever way it ends; and from which commit it is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import record
from record import Found


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_each_result_is_kept_once_it_is_there(tmp_path: Path) -> None:
    with Found(tmp_path / "new/figures.json", {"cores": 2}) as found:
        assert read(tmp_path / "new/figures.json")["results"] == []
        found.put("1b", {"tok_s": 1})
        found.put("8b", {"tok_s": 2})
        found.put("1b", {"tok_s": 3})
        under_way = read(tmp_path / "new/figures.json")
    assert under_way == {"machine": {"cores": 2}, "ended": "under way", "results": [{"tok_s": 3}, {"tok_s": 2}]}
    assert read(tmp_path / "new/figures.json") == under_way | {"ended": "complete"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["figures.json"]


@pytest.mark.parametrize("number", record.CUT)
def test_a_signal_ends_a_benchmark_and_keeps_its_results(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, Found(tmp_path / "figures.json", {}) as found:
        found.put("1b", 1)
        try:
            os.kill(os.getpid(), number)
            found.put("8b", 2)
        finally:  # as the way out of a server does, which a second signal must not stop
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 1 and signal.getsignal(number) is before
    kept = read(tmp_path / "figures.json")
    assert kept["results"] == [1] and kept["ended"].startswith(f"cut off by {number.name} after ")


def test_a_failure_keeps_the_results_before_it_and_goes_on(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Found(tmp_path / "figures.json", {}) as found:
        found.put("1b", 1)
        raise RuntimeError("no answer")
    assert read(tmp_path / "figures.json") == {"machine": {}, "ended": "RuntimeError: no answer", "results": [1]}


def test_without_a_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Found(None, {}) as found:
        found.put("1b", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_without_history_gets_its_commit_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(record.COMMIT, raising=False)
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert record.machine()["commit"] == "unknown"
    monkeypatch.setenv(record.COMMIT, "abc")
    assert record.machine()["commit"] == "abc"


def test_a_machine_without_git_has_an_unknown_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("git")

    monkeypatch.delenv(record.COMMIT, raising=False)
    monkeypatch.setattr(subprocess, "run", missing)
    assert record.machine()["commit"] == "unknown"
