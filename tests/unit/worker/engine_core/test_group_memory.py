"""One order at a time goes to every rank; when one of them cannot follow it, the opposite goes to all."""

import pytest

from octavo.worker.engine_core.group_memory import GroupMemory, order_seconds
from octavo.worker.errors import Fault
from octavo.worker.messages.memory import GROUP, MemoryState, Sleep, Wake


def said(rank: int, asleep: bool, moved: int = 100, error: str = "") -> MemoryState:
    return MemoryState(rank, asleep, 0 if error else moved, error)


def asleep_of(ranks: int, keep_kv: bool = False) -> GroupMemory:
    memory = GroupMemory(ranks)
    memory.ask(Sleep(keep_kv))
    memory.send()
    for rank in range(ranks):
        memory.answered(said(rank, asleep=True))
    return memory


def test_steps_are_held_from_the_question_on_and_the_group_sleeps_once_all_ranks_do() -> None:
    memory = GroupMemory(2)
    assert not memory.holds_steps
    memory.ask(Sleep(keep_kv=True))
    assert memory.holds_steps and memory.awaits_steps and not memory.awaits_ranks
    assert memory.send() == Sleep(keep_kv=True)
    assert memory.holds_steps and memory.awaits_ranks and not memory.awaits_steps
    assert memory.answered(said(1, asleep=True)) is None and not memory.asleep
    assert memory.answered(said(0, asleep=True)) == MemoryState(GROUP, True, 200)
    assert memory.asleep and memory.holds_steps and not memory.awaits_ranks


def test_a_wake_lets_steps_go_on() -> None:
    memory = asleep_of(2)
    memory.ask(Wake())
    assert memory.send() == Wake()
    assert memory.answered(said(0, asleep=False)) is None and memory.holds_steps
    assert memory.answered(said(1, asleep=False)) == MemoryState(GROUP, False, 200)
    assert not memory.holds_steps


def test_a_sleep_that_one_rank_cannot_follow_is_undone_on_all_and_then_reported() -> None:
    memory = GroupMemory(2)
    memory.ask(Sleep(keep_kv=False))
    memory.send()
    assert memory.answered(said(0, asleep=True)) is None
    assert memory.answered(said(1, asleep=False, error="no host memory")) is None
    assert memory.send() == Wake()
    assert memory.answered(said(1, asleep=False)) is None
    assert memory.answered(said(0, asleep=False)) == MemoryState(GROUP, False, 0, "rank 1: no host memory")
    assert not memory.holds_steps


@pytest.mark.parametrize("keep_kv", [False, True])
def test_a_wake_that_one_rank_cannot_follow_puts_all_to_sleep_as_they_were(keep_kv: bool) -> None:
    memory = asleep_of(2, keep_kv)
    memory.ask(Wake())
    memory.send()
    memory.answered(said(0, asleep=True, error="out of memory"))
    memory.answered(said(1, asleep=False))
    assert memory.send() == Sleep(keep_kv)
    memory.answered(said(0, asleep=True, moved=0))
    assert memory.answered(said(1, asleep=True)) == MemoryState(GROUP, True, 0, "rank 0: out of memory")
    memory.ask(Wake())
    memory.send()
    memory.answered(said(0, asleep=False))
    assert memory.answered(said(1, asleep=False)) == MemoryState(GROUP, False, 200), "the next wake is a new one"


def test_what_can_neither_be_done_nor_undone_ends_the_incarnation() -> None:
    memory = GroupMemory(1)
    memory.ask(Sleep(keep_kv=False))
    memory.send()
    memory.answered(said(0, asleep=False, error="no host memory"))
    memory.send()
    with pytest.raises(Fault, match=r"RankFailed|no host memory; nor does rank 0 go on as it was: gone"):
        memory.answered(said(0, asleep=True, error="gone"))


def test_only_an_order_to_sleep_that_awake_ranks_have_not_heard_lets_requests_end() -> None:
    memory = GroupMemory(1)
    assert not memory.lets_requests_end
    memory.ask(Sleep(keep_kv=True))
    assert memory.lets_requests_end
    memory.send()
    assert not memory.lets_requests_end
    memory.answered(said(0, asleep=True))
    memory.ask(Sleep(keep_kv=False))
    assert not memory.lets_requests_end, "it is asleep"


def test_an_order_may_take_the_longer_the_larger_the_model_is() -> None:
    assert order_seconds(0) == 120
    assert order_seconds(140_000_000_000) == 680
