"""`octavo sleep` and `octavo wake` beside an `octavo run`: requests wait meanwhile, and lose nothing by it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.processes.local import LocalRun, complete, local_run, many
from support.soak.process_table import ProcessTable
from support.soak.service import router_gauges

ALPHABET = "bcdefghi"


def octavo(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A command of a user whose temporary files lie in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "octavo", *argv], env=os.environ | {"TMPDIR": str(folder)}, capture_output=True,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


async def status(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")


@pytest.fixture(scope="module")
def two_groups(folder: Path) -> Iterator[LocalRun]:
    model = successor_checkpoint(folder / "model")
    with local_run(model, "--replicas", "2", forked=False, environment={"TMPDIR": str(folder)}) as run:
        run.until_serving()
        yield run


async def until_open(folder: Path, run: LocalRun, requests: int) -> None:
    """The router has so many requests that it has not answered."""
    table = ProcessTable(folder)
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(router_gauges, run.url, table)).get("open_requests") != requests:
            await asyncio.sleep(0.05)


async def test_requests_wait_while_all_groups_sleep_and_are_answered_after_the_wake(
    folder: Path, two_groups: LocalRun
) -> None:
    slept = octavo(folder, "sleep")
    assert slept.returncode == 0, slept.stderr
    assert slept.stdout.count("-0-status.sock: asleep: ") == 2 and "GiB given back in" in slept.stdout
    waiting = [asyncio.create_task(complete(two_groups.url)) for _ in range(6)]
    await until_open(folder, two_groups, 6)
    again = await asyncio.to_thread(octavo, folder, "sleep", "--now")
    assert again.stdout.count(": was asleep") == 2
    assert not any(one.done() for one in waiting)
    assert await status(f"{two_groups.url}/readyz") == 503
    assert await status(f"{two_groups.url}/routerz") == 200, "requests are held"
    woken = await asyncio.to_thread(octavo, folder, "wake")
    assert woken.returncode == 0 and woken.stdout.count(": awake: ") == 2, woken.stderr
    answers = await asyncio.gather(*waiting)
    assert await status(f"{two_groups.url}/readyz") == 200
    assert [(status, body["choices"][0]["text"]) for status, body in answers] == 6 * [(200, ALPHABET)]  # type: ignore[index]
    assert octavo(folder, "wake").stdout.count(": was awake") == 2


async def test_one_group_serves_all_requests_while_the_other_sleeps(folder: Path, two_groups: LocalRun) -> None:
    (socket,) = folder.glob("octavo-run-*/1-0-status.sock")
    assert octavo(folder, "sleep", "--status", f"unix:{socket}").returncode == 0
    answers = await many(two_groups.url, 12)
    assert {(status, body["choices"][0]["text"]) for status, body in answers} == {(200, ALPHABET)}  # type: ignore[index]
    assert octavo(folder, "wake").stdout.count(": awake: ") == 1


def test_without_a_group_both_say_what_to_do(tmp_path: Path) -> None:
    for command in ("sleep", "wake"):
        done = octavo(tmp_path, command)
        assert done.returncode == 2 and f"octavo {command}: no group runs here: start one by" in done.stderr


def test_a_socket_where_no_supervisor_answers_is_named(tmp_path: Path) -> None:
    done = octavo(tmp_path, "wake", "--status", f"unix:{tmp_path}/absent.sock")
    assert done.returncode == 1 and f"octavo wake: unix:{tmp_path}/absent.sock: " in done.stderr
