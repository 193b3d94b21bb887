"""`octavo run` keeps its promises under load while its processes are killed and stopped, in four configurations.

`benchmarks/soak_faults.py` for half a minute each, in an interpreter of its own: a failure says which promise was
broken, and the same command with `--records` keeps each request.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import PATIENCE_S
from support.soak.configurations import CONFIGURATIONS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "soak_faults.py"
SECONDS = 30
LIMIT_S = SECONDS + 6 * PATIENCE_S  # right answers, start, faults, healing, settling and Ctrl-C; no promise
SMALL = ("--clients", "16", "--prompts", "8", "--final", "24", "--pause", "1,3", "--patient")
SEEDS = {"a": 11, "b": 22, "c": 33, "d": 44}

pytestmark = pytest.mark.timeout(LIMIT_S + PATIENCE_S)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The right answers, which the first soak finds for the others."""
    return tmp_path_factory.mktemp("truth") / "truth.json"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_request_ends_once_in_time_and_rightly_and_nothing_leaks(name: str, truth: Path, tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    asked = ("--config", name, "--seconds", str(SECONDS), "--seed", str(SEEDS[name]), *SMALL)
    command = [sys.executable, str(SCRIPT), *asked, "--truth", str(truth), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.terminate()  # it ends its service first
    assert process.returncode == 0, said
    (found,) = json.loads(out.read_text())["results"]
    assert found["outcomes"]["200"] > 0 and found["faults"], said
