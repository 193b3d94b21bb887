"""10,000 model files with something wrong in them: each is refused by name or loaded soundly, and nothing ends."""

import json
import multiprocessing
from collections import Counter
from pathlib import Path

import pytest
from support.models.spoilt_loads import KINDS, load_all

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", KINDS)
def test_a_spoilt_file_is_refused_by_name_or_loaded_soundly(tmp_path: Path, name: str) -> None:
    report = tmp_path / "report"
    start = multiprocessing.get_context("forkserver")  # a fork of this process would have the threads of other tests
    process = start.Process(target=load_all, args=(tmp_path / "model", name, report))
    process.start()
    process.join(240)
    assert process.exitcode == 0, report.read_text()
    endings = Counter(json.loads(report.with_suffix(".json").read_text()))
    assert endings.total() == KINDS[name][0] and endings["refused"] > KINDS[name][0] // 20, endings
    assert endings["loaded"] >= 5, "a change that no reader minds is no fault"


def test_they_are_ten_thousand() -> None:
    assert sum(count for count, _, _ in KINDS.values()) == 10_000
