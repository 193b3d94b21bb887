"""Ranks agree on a way between their GPUs, all on the same one, whatever fails on any. No GPU is needed here."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Barrier
from typing import Any

import pytest
import torch

from octavo.kernels.cuda.collectives import ipc
from octavo.kernels.errors import KernelError
from octavo.worker.distributed.links import Sampled
from octavo.worker.runner.cuda.links import Sizes, around
from octavo.worker.runner.cuda.shared import Unshared, share
from octavo.worker.topology import Layout, RankPosition

RANKS, SIZES = 3, (5000, 16, 1000)


class Memory:
    """Of a host's GPUs: words by address. Each rank's begins at 1,000,000 times its index + 1."""

    def __init__(self) -> None:
        self.words: dict[int, int] = {}
        self.made = 0
        self.sizes: dict[int, int] = {}
        self.unopened = b""  # a handle that no rank can open
        self.lost: set[int] = set()  # what is written with these values never arrives
        self.full = False

    def make(self, size: int) -> ipc.Region:
        if self.full and self.made:
            raise KernelError("out of memory")
        self.made += 1
        self.sizes[1_000_000 * self.made] = size
        return ipc.Region(1_000_000 * self.made, str(self.made).encode().ljust(ipc.HANDLE_BYTES, b"\0"))

    def open_(self, handle: bytes) -> ipc.Region:
        if handle.startswith(self.unopened) and self.unopened:
            raise KernelError("cudaIpcOpenMemHandle: CUDA error 1")
        return ipc.Region(1_000_000 * int(handle.rstrip(b"\0")), b"")

    def write(self, at: int, word: int) -> None:
        assert at % 1_000_000 + 4 <= self.sizes[at - at % 1_000_000], "beyond what was made"
        if word not in self.lost:
            self.words[at] = word

    def read(self, at: int) -> int:
        return self.words.get(at, 0)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    made = Memory()
    for name in ("make", "open_", "write", "read"):
        monkeypatch.setattr(ipc, name, getattr(made, name))
    return made


def on_each(work: Callable[[int, Callable[[bytes], list[bytes]]], Any]) -> list[Any]:
    """What work(rank, exchange) returns or raises on each rank."""
    barrier, said = Barrier(RANKS, timeout=20), [b""] * RANKS

    def run(rank: int) -> Any:
        def exchange(mine: bytes) -> list[bytes]:
            said[rank] = mine
            barrier.wait()
            heard = list(said)
            barrier.wait()
            return heard

        try:
            return work(rank, exchange)
        except Unshared as error:
            return error

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(run, range(RANKS)))


def shares() -> list[Any]:
    return on_each(lambda rank, exchange: share(SIZES[rank], rank, exchange))


def test_everybody_has_everybodys_addresses(memory: Memory) -> None:
    found = shares()
    assert all(addresses == found[0] for addresses in found)
    for size, at in zip(SIZES, found[0], strict=True):
        assert at % 16 == 0 and all(word + 4 <= at or word >= at + size for word in memory.words), "it is not all zeros"
        assert at % 1_000_000 + size <= memory.sizes[at - at % 1_000_000]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (lambda memory: setattr(memory, "full", True), "out of memory"),
        (lambda memory: setattr(memory, "unopened", b"2"), "cudaIpcOpenMemHandle"),
        (lambda memory: memory.lost.add(0x0C7A0001), "what rank 1 wrote to the GPU of rank"),
    ],
    ids=["no memory", "no way to it", "a way that loses what is written"],
)
def test_what_fails_on_one_is_reported_to_all(memory: Memory, trouble: Callable[[Memory], None], said: str) -> None:
    trouble(memory)
    found = shares()
    assert all(isinstance(error, Unshared) and said in str(error) for error in found), found


def test_other_hosts_are_not_reached(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_another(rank: int, exchange: Callable[[bytes], list[bytes]]) -> Any:
        def elsewhere(said: bytes) -> list[bytes]:
            away = rank == 2 and len(said) > 90 and said[36:37] != b"\0" and said[8:9] == b"-"
            return exchange(b"x" + said[1:] if away else said)

        return share(SIZES[rank], rank, elsewhere)

    assert all("several hosts" in str(error) for error in on_each(on_another))


class Ring:
    """Links as the inlets of ranks take them: ids come to the first stage, hidden states to the others."""

    def __init__(self, position: RankPosition, queues: list["SimpleQueue[Any]"]) -> None:
        self._own, self._next, self._place = queues[position.rank], queues[position.next], position

    def send_hidden(self, step: int, hidden: torch.Tensor) -> None:
        assert not self._place.last and step == 0
        self._next.put(hidden.clone())

    def receive_hidden(self, step: int) -> torch.Tensor:
        tensor = self._own.get(timeout=20)
        assert isinstance(tensor, torch.Tensor) and step == 0
        return tensor

    def send_sampled(self, sampled: Sampled) -> None:
        assert self._place.last and sampled.number == 0
        self._next.put(sampled)

    def receive_sampled(self) -> Sampled:
        sampled = self._own.get(timeout=20)
        assert isinstance(sampled, Sampled)
        return sampled


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("size", [1, 4, 99])
def test_what_goes_around_reaches_every_stage(stages: int, size: int) -> None:
    places = [RankPosition(Layout(1, stages, 1), rank) for rank in range(stages)]
    queues: list[SimpleQueue[Any]] = [SimpleQueue() for _ in places]
    said = [bytes([250 - rank] * size) for rank in range(stages)]

    def go(position: RankPosition) -> list[list[bytes]]:
        links = Ring(position, queues)
        return [around(links, position, said[position.rank]), around(links, position, said[position.rank][::-1])]

    with ThreadPoolExecutor(stages) as pool:
        assert list(pool.map(go, places)) == [[said, said]] * stages


def test_a_box_holds_the_largest_message() -> None:
    sizes, layout = Sizes(rows=5, hidden_bytes=1001), Layout(1, 3, 1)
    assert [sizes.boxes(RankPosition(layout, rank)) for rank in range(3)] == [(96, 8), (1008, 2), (1008, 2)]
