"""Folders of processes that were killed do not pile up; a running process's folder is not removed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from octavo.shared.scratch import scratch

HOLDER = """
import sys
from octavo.shared.scratch import scratch
with scratch("octavo-x-", sys.argv[1]) as folder:
    (folder / "leader.sock").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_the_next_removes_what_a_killed_one_left_and_only_that(tmp_path: Path) -> None:
    held = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=held, stdout=held, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        foreign = [tmp_path / name for name in ("octavo-x-no-lock", "octavo-y-other")]
        for folder in foreign:
            folder.mkdir()
        (foreign[1] / "lock").touch()
        with scratch("octavo-x-", str(tmp_path)) as own:
            assert left.is_dir() and (left / "leader.sock").exists(), "its process runs"
        assert not own.exists()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert left.is_dir()
        with scratch("octavo-x-", str(tmp_path)) as own:
            assert not left.exists()
            assert sorted(tmp_path.iterdir()) == sorted([own, *foreign])


def test_a_link_to_elsewhere_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / "octavo-x-link").symlink_to(elsewhere)
    with scratch("octavo-x-", str(tmp_path)):
        assert (elsewhere / "lock").exists()
