"""Sampled ids reach the first stage's token pool before they are read, no sooner, and never over another request's."""

import pytest
import torch

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.distributed.links import Sampled
from octavo.worker.messages.step import Admit, Forward, Sample, Step
from octavo.worker.runner.cpu.sampled import receive_tokens
from octavo.worker.runner.pending_tokens import PendingTokens


class Arriving:
    """Links that only bring sampled ids; asking for more than were sent is an error."""

    def __init__(self) -> None:
        self.sent: list[Sampled] = []

    def send_hidden(self, step: int, hidden: torch.Tensor) -> None:
        raise NotImplementedError

    def receive_hidden(self, step: int) -> torch.Tensor:
        raise NotImplementedError

    def send_sampled(self, sampled: Sampled) -> None:
        self.sent.append(sampled)

    def receive_sampled(self) -> Sampled:
        return self.sent.pop(0)


@pytest.fixture
def links() -> Arriving:
    return Arriving()


@pytest.fixture
def pool() -> torch.Tensor:
    return torch.zeros((4, 32), dtype=torch.int64)


class Ids(PendingTokens):
    """Takes in what is due, as a runner does."""

    def __init__(self, links: Arriving, pool: torch.Tensor) -> None:
        super().__init__(most=3)
        self._links, self._pool = links, pool

    def settle(self, forward: Forward) -> None:
        for pending in self.due(forward):
            receive_tokens(self._links, self._pool, pending)


@pytest.fixture
def ids(links: Arriving, pool: torch.Tensor) -> Ids:
    return Ids(links, pool)


def decode(number: int, *slots: int, start: int = 9) -> Step:
    rows = tuple(range(len(slots)))
    forward = Forward(slots=slots, starts=(start,) * len(slots), counts=(1,) * len(slots))
    return Step(number, forward, Sample(rows, (0,) * len(slots)))


def admit(slot: int) -> Forward:
    return Forward(admits=(Admit(slot, (5, 6), SamplingParams(), 0),))


def test_a_step_takes_in_what_its_rows_read(ids: Ids, links: Arriving, pool: torch.Tensor) -> None:
    ids.expect(decode(1, 0, 2))
    links.send_sampled(Sampled(1, (70, 72)))
    ids.settle(decode(2, 2, start=10).forward)
    assert pool[0, 10] == 70 and pool[2, 10] == 72


def test_a_step_of_other_slots_waits_for_nothing(ids: Ids, links: Arriving) -> None:
    ids.expect(decode(1, 0))
    ids.settle(decode(2, 1).forward)
    ids.settle(Forward())


def test_no_more_is_waited_for_than_a_step_reads(ids: Ids, links: Arriving, pool: torch.Tensor) -> None:
    """Of two micro-batches under way, the second may still be on its way."""
    ids.expect(decode(1, 0))
    ids.expect(decode(2, 1))
    links.send_sampled(Sampled(1, (70,)))
    ids.settle(decode(3, 0, start=10).forward)
    assert pool[0, 10] == 70 and links.sent == []


def test_what_lies_before_is_taken_in_too(ids: Ids, links: Arriving, pool: torch.Tensor) -> None:
    ids.expect(decode(1, 0))
    ids.expect(decode(2, 1))
    links.sent += [Sampled(1, (70,)), Sampled(2, (71,))]
    ids.settle(decode(3, 1, start=10).forward)
    assert pool[0, 10] == 70 and pool[1, 10] == 71


def test_late_ids_are_not_written_over_the_next_request_of_a_slot(
    ids: Ids, links: Arriving, pool: torch.Tensor
) -> None:
    """The request ended by a result that reached the leader before its ids came here."""
    ids.expect(decode(1, 0, start=0))
    links.send_sampled(Sampled(1, (70,)))
    ids.settle(admit(0))
    pool[0, :2] = torch.tensor((5, 6))
    ids.settle(decode(3, 0, start=2).forward)
    assert pool[0, :2].tolist() == [5, 6] and links.sent == []


def test_a_step_that_samples_nothing_brings_nothing(ids: Ids) -> None:
    ids.expect(Step(1, Forward(slots=(0,), starts=(0,), counts=(8,)), Sample()))
    ids.settle(decode(2, 0).forward)


def test_a_step_without_rows_is_heard_of_in_its_turn(ids: Ids, links: Arriving, pool: torch.Tensor) -> None:
    for number in range(1, 7):
        ids.settle(Forward())
        ids.expect(Step(number, Forward(), Sample()))
        links.send_sampled(Sampled(number, ()))
        assert len(links.sent) == min(number, 4)
    ids.expect(decode(7, 0))
    links.send_sampled(Sampled(7, (70,)))
    ids.settle(decode(8, 0, start=10).forward)
    assert pool[0, 10] == 70 and links.sent == []


@pytest.mark.parametrize("wrong", [Sampled(2, (70,)), Sampled(1, (70, 71))])
def test_ids_of_another_step_are_refused(ids: Ids, links: Arriving, wrong: Sampled) -> None:
    ids.expect(decode(1, 0))
    links.send_sampled(wrong)
    with pytest.raises(ValueError, match="of step 1"):
        ids.settle(decode(2, 0).forward)


def test_ids_that_no_request_needs_are_taken_in_when_too_much_is_on_its_way(ids: Ids, links: Arriving) -> None:
    """Of requests that have ended: the sender of their ids has room for so many."""
    for number in range(1, 9):
        ids.settle(decode(number, 3).forward)
        ids.expect(decode(number, 1))
        links.send_sampled(Sampled(number, (7,)))
        assert len(links.sent) == min(number, 4)
