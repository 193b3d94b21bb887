"""A rank copies its weights to the host when there is room for it, and for the copies of its pod's other ranks."""

import os
import threading
from collections.abc import Iterator

import pytest
from support.patience import PATIENCE_S

from octavo.worker.ipc import shared_board
from octavo.worker.messages.memory import MemoryState, Sleep, Wake
from octavo.worker.rank.memory import RankMemory
from octavo.worker.rank.pod_copies import PodCopies

SIZE = 15 << 30
POD = range(2, 4)  # ranks of the second stage's pod


class Host:
    """left: bytes."""

    def __init__(self, left: int) -> None:
        self.left = left

    def short(self, needed: int) -> str:
        return "raise the limit" if needed > self.left else ""


class Runner:
    """On a GPU: the first sleep copies."""

    def __init__(self, host: Host, size: int = SIZE) -> None:
        self._host, self._size = host, size
        self.copy_bytes, self.slept = size, 0
        self.copying, self.may_copy = threading.Event(), threading.Event()
        self.may_copy.set()

    def prepare_sleep(self) -> None:
        if self.copy_bytes:
            self.copying.set()
            assert self.may_copy.wait(PATIENCE_S)
            assert self._host.left >= self._size, "the kernel kills a process"
            self._host.left -= self._size
            self.copy_bytes = 0

    def sleep(self, keep_kv: bool) -> int:
        self.prepare_sleep()
        self.slept += 1
        return self._size

    def wake(self) -> int:
        return self._size


@pytest.fixture
def board() -> Iterator[int]:
    fd = shared_board.create()
    yield fd
    os.close(fd)


def ranks(board: int, host: Host) -> tuple[list[Runner], list[RankMemory]]:
    runners = [Runner(host) for _ in POD]
    return runners, [
        RankMemory(runner, rank, PodCopies(board, POD, rank), host.short)  # type: ignore[arg-type]
        for rank, runner in zip(POD, runners, strict=True)
    ]


def test_a_rank_without_room_for_its_copy_goes_on_and_says_how_much_it_takes(board: int) -> None:
    runner = Runner(host := Host(SIZE - 1))
    memory = RankMemory(runner, 2, PodCopies(board, range(2, 3), 2), host.short)  # type: ignore[arg-type]
    said = memory.obey(Sleep(keep_kv=False))
    assert said == MemoryState(
        2, False, 0, "the weights of a rank that sleeps stay in the host's memory: 15.0 GiB more, and raise the limit"
    )
    assert not runner.slept
    host.left += 1
    assert memory.obey(Sleep(keep_kv=False)) == MemoryState(2, True, SIZE)
    assert memory.obey(Wake()) == MemoryState(2, False, SIZE)
    host.left = 0
    assert memory.obey(Sleep(keep_kv=False)) == MemoryState(2, True, SIZE), "a later sleep takes nothing"


def test_room_for_one_copy_is_not_enough_where_two_are_to_be_made(board: int) -> None:
    host = Host(2 * SIZE - 1)
    runners, memories = ranks(board, host)
    said = [memory.obey(Sleep(keep_kv=False)) for memory in memories]
    assert all("30.0 GiB more for the ranks of this pod" in state.error for state in said)
    host.left += 1
    assert [memory.obey(Sleep(keep_kv=False)).asleep for memory in memories] == [True, True]
    assert host.left == 0 and [runner.slept for runner in runners] == [1, 1]


def test_ranks_are_prepared_one_after_the_other_and_only_where_there_is_room(
    board: int, caplog: pytest.LogCaptureFixture
) -> None:
    runners, memories = ranks(board, Host(2 * SIZE))
    runners[0].may_copy.clear()
    first = memories[0].prepare()
    assert runners[0].copying.wait(PATIENCE_S)
    second = memories[1].prepare()
    assert not runners[1].copying.wait(0.1), "it would count the first one's copy twice"
    runners[0].may_copy.set()
    for thread in (first, second):
        thread.join(PATIENCE_S)
    assert [runner.copy_bytes for runner in runners] == [0, 0]
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_rank_that_is_to_be_prepared_without_room_only_warns(board: int, caplog: pytest.LogCaptureFixture) -> None:
    runners, memories = ranks(board, Host(SIZE))
    memories[0].prepare().join(PATIENCE_S)
    assert runners[0].copy_bytes == SIZE
    assert "not prepared to sleep: the weights" in caplog.text and "raise the limit" in caplog.text
