"""While a group loads, whatever of it is killed is named and the group serves; and what is only slow ends nothing.

The seed is printed and part of each failure; OCTAVO_FAULT_SEED repeats a run.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S, Bound
from support.processes.process_table import is_running
from support.worker.gated_group import GatedGroup
from support.worker.worker import client, until

from octavo.proto.v1 import group_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")  # what is slow goes on beside the other tests

SEED = int(os.environ.get("OCTAVO_FAULT_SEED", time.time_ns() % 100_000))
GONE_S = 2 * 2.0  # twice the aim, from when a loss is noticed
STALLED_S = 5.0
IMPORT_S, READ_S, STEP_S = 11.0, 6.0, 4.0  # what slow machines have been seen to take, and more than may be silent

Point = tuple[int, str]  # (pod, where a process waits in it)
LOADING: list[Point] = [(pod, point) for pod in (0, 1) for point in ("fork", "meet", "read", "hello")]
IMPORTING: list[Point] = [(0, "import"), (1, "import")]
# Where each may be while it is killed, and how the status then names it: (pod, rank, reason, exit code).
VICTIMS: dict[str, tuple[list[Point], tuple[str, int, str, int]]] = {
    "rank 0": (LOADING, ("group-0-0", 0, "RankExited", -signal.SIGKILL)),
    "rank 1": (LOADING, ("group-0-1", 1, "RankExited", -signal.SIGKILL)),
    "serve": ([*LOADING, *IMPORTING, (0, "serve"), (0, "ranks")], ("group-0-0", -1, "ServeExited", -signal.SIGKILL)),
    "core": ([*LOADING, *IMPORTING, (0, "core"), (0, "ranks")], ("group-0-0", -1, "CoreExited", -signal.SIGKILL)),
    "fork_server 0": (IMPORTING[:1], ("group-0-0", -1, "StartFailed", 0)),
    "fork_server 1": (IMPORTING[1:], ("group-0-1", -1, "StartFailed", 0)),
    "follower": ([*LOADING, *IMPORTING, (0, "ranks")], ("group-0-1", -1, "SupervisorLost", 0)),
    "leader": ([*LOADING, *IMPORTING, (0, "serve"), (0, "ranks")], ("", 0, "", 0)),  # a new one knows of nothing
}
# In the order of their coming; the last two once the group serves.
SLOW = [
    (0, "import", IMPORT_S), (1, "import", IMPORT_S), (1, "read", READ_S),
    (0, "capture", STEP_S), (1, "capture", STEP_S),
]  # fmt: skip
SHAPES = [(1, 2), (2, 1)]
SUPERVISORS = {"leader": 0, "follower": 1}


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return successor_checkpoint(tmp_path_factory.mktemp("model") / "letters")


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def slow(letters: Path) -> AsyncIterator["asyncio.Task[None]"]:
    """Begun before everything else, because it takes its time."""
    task = asyncio.create_task(_slow_and_whole(letters))
    yield task
    task.cancel()
    await asyncio.wait({task})


def _pid(one: GatedGroup, victim: str) -> int | None:
    name, _, pod = victim.partition(" ")
    if victim in SUPERVISORS:
        return one.pods[SUPERVISORS[victim]].pid
    return one.pods[int(pod or 0)].children().get(name)


async def _answers(one: GatedGroup, tokens: int = 3) -> None:
    async with client(one.leader) as router:
        answer = await router.submit([ord("a")], tokens)
        await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
        assert answer.ids == [ord("a") + (1 + n) % 26 for n in range(tokens)], one.text()


@pytest.mark.parametrize("victim", VICTIMS)
async def test_a_process_killed_while_its_group_loads_is_named_and_the_group_serves(letters: Path, victim: str) -> None:
    dice = random.Random(f"{SEED} {victim}")
    where, shape = dice.choice(VICTIMS[victim][0]), dice.choice(SHAPES)
    print(f"seed {SEED}: pod {where[0]} at {where[1]}, tensor {shape[0]} x pipeline {shape[1]}")
    await _kill_and_serve(letters, victim, where, shape)


async def _kill_and_serve(model: Path, victim: str, where: Point, shape: tuple[int, int]) -> None:
    (pod, point), what = where, f"seed {SEED}, {where}, {shape}"
    one = GatedGroup(model, *shape)
    try:
        one.gate(pod, point).close()
        one.start()
        await one.come(pod, point)
        await until(lambda: _pid(one, victim) is not None, why=one.text)
        if victim == "follower":  # before that it has nothing to lose
            await until(lambda: "joined incarnation" in one.pods[1].text(), why=one.text)
        pid, ranks = _pid(one, victim), one.ranks()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        bound = Bound(one.recovery_s)
        await until(lambda: not any(is_running(rank) for rank in ranks), GONE_S, lambda: f"{what}\n{one.text()}")
        one.gate(pod, point).open()
        if victim in SUPERVISORS:
            await one.pods[SUPERVISORS[victim]].exit_code()
            one.pods[SUPERVISORS[victim]].start()
        while not all(pod.get("health", "/readyz")[0] == 200 for pod in one.pods):
            assert not bound.over, f"{what}: not within {bound}\n{one.text()}"
            await asyncio.sleep(0.05)
        bound.kept()
        await _answers(one)
        status = await one.leader.status()
        failure = status.last_failure
        named = (failure.pod, failure.rank, failure.reason, failure.exit_code)
        assert named == VICTIMS[victim][1], f"{what}\n{one.text()}"
        assert status.restarts == (victim != "leader"), f"{what}: one incarnation is lost\n{one.text()}"
    finally:
        one.close()


async def test_a_serve_that_never_begins_is_a_stalled_load_and_no_pod_that_does_not_come(letters: Path) -> None:
    one = GatedGroup(letters, 1, 2)
    try:
        one.gate(0, "serve").close()
        one.gate(0, "stalled").close(STALLED_S)
        one.start()
        async with asyncio.timeout(PATIENCE_S):
            while not (failure := (await one.leader.status()).last_failure).reason:
                await asyncio.sleep(0.1)
        assert (failure.pod, failure.rank, failure.reason) == ("group-0-0", -1, "LoadStalled"), one.text()
        assert "serve" in failure.message
        one.gate(0, "serve").open()
        await one.ready()
    finally:
        one.close()


async def _slow_and_whole(model: Path) -> None:
    """A group in which everything is slow that may be."""
    one = GatedGroup(model, 1, 2)
    try:
        for pod, point, seconds in SLOW:
            one.gate(pod, point).close(seconds)
        one.start()
        for pod, point, _ in SLOW:
            await one.come(pod, point)
            one.gate(pod, point).open()
        await one.ready()
        answering = asyncio.create_task(_answers(one, 200))
        one.gate(1, "step").close(STEP_S)
        await one.come(1, "step")
        one.gate(1, "step").open()
        await answering
        status = await one.leader.status()
        assert (status.phase, status.restarts) == (group_pb2.SERVING, 0), one.text()
    finally:
        one.close()


async def test_slow_imports_slow_files_slow_captures_and_slow_steps_end_no_incarnation(
    slow: "asyncio.Task[None]",
) -> None:
    await asyncio.wait_for(slow, PATIENCE_S)
