"""Ranks are forked from a process that has PyTorch: what becomes of both when one of them is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.worker.worker import client, serving, until

TESTS = Path(__file__).parents[2]


def test_ranks_are_children_of_the_supervisor_wait_for_their_go_and_a_lost_or_silent_fork_server_is_replaced():
    environment = os.environ | {"PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "support.processes.fork_server_run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.splitlines() == [
        "parent is ours: True",
        "the one started before is asked: True",
        "threads of the fork_server: 1",
        "waits for its go: True",
        "without it: 1",
        "lost fork_server: the process that ranks are forked from has ended",
        "another fork_server, and a rank that had ended before it was heard of: -9 {}",
        "stopped fork_server: another is asked for",
        "is ended: -9",
    ], done.stderr


async def test_no_fork_server_outlives_a_worker_that_does_not_start(tmp_path):
    own = {name: f"unix:{tmp_path}/{name}" for name in ("serve", "group", "health", "metrics")} | {"status": "nowhere"}
    flags = [f"--{name}={address}" for name, address in own.items()]
    command = [sys.executable, "-m", "octavo", "worker", "--model=/nowhere", "--device=cpu", *flags]
    marked = os.environ | {"OCTAVO_TEST_MARK": str(tmp_path)}
    done = subprocess.run(command, env=marked, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2 and "--status" in done.stderr

    def left() -> list[str]:
        mark = f"OCTAVO_TEST_MARK={tmp_path}".encode()
        return [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if mark in _bytes(path)]

    await until(lambda: not left())


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_a_lost_fork_server_disturbs_no_rank_and_is_replaced_before_it_is_needed(tmp_path):
    async with serving(successor_checkpoint(tmp_path / "letters")) as worker:
        before = worker.children()
        async with client(worker) as router:
            answer = await router.submit([ord("a")], 500)
            await until(lambda: bool(answer.ids))
            os.kill(lost := before["fork_server"], signal.SIGKILL)
            await until(answer.done.is_set)
            assert len(answer.ids) == 500
        await until(lambda: worker.children().get("fork_server", lost) != lost, PATIENCE_S, worker.text)
        os.kill(before["rank"], signal.SIGKILL)
        await until(lambda: worker.children().get("rank", before["rank"]) != before["rank"], PATIENCE_S, worker.text)
        await worker.ready()
        after = worker.children()
        assert after["fork_server"] != before["fork_server"]
        os.kill(after["rank"], signal.SIGKILL)
        await until(lambda: worker.children().get("rank", after["rank"]) != after["rank"], PATIENCE_S, worker.text)
        await worker.ready()
        assert worker.children()["fork_server"] == after["fork_server"]
