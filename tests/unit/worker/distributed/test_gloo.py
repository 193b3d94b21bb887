"""Ranks that are processes sum to the same bits, meet by incarnation, and notice when one of them is gone."""

import multiprocessing
import os
import signal
import socket
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from support.processes.forked import preload

from octavo.worker.distributed.gloo import Gloo
from octavo.worker.errors import PeerLost

START = multiprocessing.get_context("forkserver")
preload("octavo.worker.runner.cpu.runner")


def rank_process(rank: int, size: int, meeting: str, incarnation: str, pipe: Connection) -> None:
    """Do what comes through the pipe; what raises is answered by its name."""
    torch.set_num_threads(1)
    group = Gloo(rank, size, meeting, incarnation)
    while True:
        kind, seed = pipe.recv()
        x = numbers(rank, seed)
        try:
            pipe.send((group.sum_(x) if kind == "sum" else group.gather(x)).numpy())
        except PeerLost as error:
            pipe.send(type(error).__name__)


def numbers(rank: int, seed: int) -> torch.Tensor:
    """Of sizes that rings divide unevenly; some smaller than the ring."""
    size = (1, 2, 577, 16 * 576)[seed % 4]
    return torch.randn(size, generator=torch.Generator().manual_seed(100 * seed + rank)) * 10 ** (seed % 3)


class Stage:
    def __init__(self, size: int, meeting: str, incarnation: str = "one") -> None:
        pairs = [START.Pipe() for _ in range(size)]
        self.pipes = [mine for mine, _ in pairs]
        self.processes = [
            START.Process(target=rank_process, args=(rank, size, meeting, incarnation, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for process in self.processes:
            process.start()

    def ask(self, kind: str, seed: int, *ranks: int) -> list[Any]:
        pipes = [self.pipes[rank] for rank in ranks or range(len(self.pipes))]
        for pipe in pipes:
            pipe.send((kind, seed))
        return [pipe.recv() for pipe in pipes]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


@pytest.fixture(params=["file", "tcp"])
def meeting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/meeting"
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("size", [2, 3, 4])
def test_sums_are_the_same_to_the_bit_on_every_rank(meeting: str, size: int) -> None:
    stage = Stage(size, meeting)
    for seed in range(12):
        sums = [torch.from_numpy(one) for one in stage.ask("sum", seed)]
        assert all(torch.equal(one, sums[0]) for one in sums)
        exact = sum(numbers(rank, seed).double() for rank in range(size))
        torch.testing.assert_close(sums[0].double(), exact, rtol=1e-6, atol=1e-3)
    stage.kill()


def test_a_gather_has_what_everybody_gave_in_the_order_of_the_ranks(meeting: str) -> None:
    stage = Stage(3, meeting)
    expected = torch.stack([numbers(rank, 2) for rank in range(3)])
    assert all(torch.equal(torch.from_numpy(one), expected) for one in stage.ask("gather", 2))
    stage.kill()


@pytest.mark.parametrize("kind", ["sum", "gather"])
def test_a_rank_that_is_killed_is_missed_by_the_others_at_once(tmp_path: Path, kind: str) -> None:
    stage = Stage(3, f"file://{tmp_path}/meeting")
    stage.ask("sum", 0)
    pid = stage.processes[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    stage.processes[1].join()
    assert stage.ask(kind, 3, 0, 2) == ["PeerLost", "PeerLost"]
    stage.kill()


def test_what_an_earlier_incarnation_left_at_the_meeting_is_not_met(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/meeting"
    for incarnation in ("one", "two"):
        stage = Stage(2, place, incarnation)
        assert len(stage.ask("sum", 2)) == 2
        stage.kill()
