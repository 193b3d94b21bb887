"""Masks follow their step as soon as every token that they depend on is here, and never before."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from octavo.worker.messages.output import Output
from octavo.worker.messages.request import Finish
from octavo.worker.messages.step import Forward, Sample, Step
from octavo.worker.scheduler.constraints import Constraints


class Script:
    """A matcher that remembers what it took."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.broken = False

    def take(self, ids: Sequence[int]) -> None:
        self.taken += ids


def fill(matchers: Sequence[Script | None]) -> bytes:
    """A byte for each: how many tokens it has taken; 255 where there is none."""
    return bytes(255 if matcher is None else len(matcher.taken) for matcher in matchers)


def step(number: int, keys: Sequence[int]) -> Step:
    rows = tuple(range(len(keys)))
    return Step(number, Forward(), Sample(rows, rows))


def outputs(keys: Sequence[int], finish: Finish = Finish.NOT_FINISHED) -> list[Output]:
    return [Output(key, (7,), finish) for key in keys]


def test_a_step_without_bound_requests_owes_nothing() -> None:
    constraints = Constraints(fill)
    constraints.bind(9, Script())
    assert constraints.mark(step(1, [1, 2]), [1, 2]).sample.masked == ()
    assert not constraints.owing
    assert constraints.masks() is None


def test_masks_of_a_first_token_are_known_at_once() -> None:
    constraints = Constraints(fill)
    constraints.bind(2, Script())
    assert constraints.mark(step(1, [1, 2, 3]), [1, 2, 3]).sample.masked == (1,)
    masks = constraints.masks()
    assert masks is not None
    assert (masks.number, masks.bits) == (1, b"\0")
    assert not constraints.owing


def test_masks_of_the_next_step_wait_for_the_token_before() -> None:
    constraints = Constraints(fill)
    constraints.bind(1, Script())
    constraints.mark(step(1, [1]), [1])
    constraints.masks()
    constraints.mark(step(2, [1]), [1])
    assert constraints.masks() is None and constraints.owing
    constraints.returned(1, outputs([1]))
    masks = constraints.masks()
    assert masks is not None and masks.bits == b"\1"


def test_a_request_that_has_ended_holds_up_no_other() -> None:
    constraints = Constraints(fill)
    for key in (1, 2):
        constraints.bind(key, Script())
    constraints.mark(step(1, [1, 2]), [1, 2])
    constraints.masks()
    constraints.mark(step(2, [1, 2]), [1, 2])
    constraints.drop(2)  # its client has gone
    constraints.returned(1, outputs([1], Finish.STOP))
    masks = constraints.masks()
    assert masks is not None and masks.bits == b"\xff\xff"
    constraints.returned(2, [])
    assert not constraints.bound


def test_a_request_whose_matcher_breaks_is_reported_and_bound_no_longer() -> None:
    constraints = Constraints(fill)
    sound, spoilt = Script(), Script()
    constraints.bind(1, sound)
    constraints.bind(2, spoilt)
    constraints.mark(step(1, [1, 2]), [1, 2])
    constraints.masks()
    spoilt.broken = True
    assert constraints.returned(1, outputs([1, 2])) == [2]
    constraints.mark(step(2, [1, 2]), [1, 2])
    masks = constraints.masks()
    assert masks is not None and masks.bits == b"\1", "the first alone is bound"
    sound.broken = True
    assert constraints.returned(2, outputs([1], Finish.STOP)) == [1], "such an end is not to be believed"
    assert not constraints.bound


@given(st.lists(st.sets(st.integers(0, 4)), min_size=1, max_size=30), st.integers(1, 3), st.data())
def test_each_mask_knows_exactly_the_tokens_before_its_sample(
    batches: list[set[int]], stages: int, data: st.DataObject
) -> None:
    """Steps sample for any requests, `stages` + 1 under way; some are bound, and some end on the way."""
    constraints = Constraints(fill)
    bound = {key: Script() for key in range(0, 5, 2)}
    for key, script in bound.items():
        constraints.bind(key, script)
    sampled = dict.fromkeys(range(5), 0)
    in_flight: list[tuple[int, list[int]]] = []
    alive = set(range(5))

    def take_one() -> None:
        number, keys = in_flight.pop(0)
        constraints.returned(number, outputs([key for key in keys if key in alive]))

    for number, batch in enumerate(batches, 1):
        keys = sorted(batch & alive)
        if len(in_flight) > stages:
            take_one()
        expected = [(entry, sampled[key]) for entry, key in enumerate(keys) if key in bound]
        marked = constraints.mark(step(number, keys), keys) if constraints.bound else step(number, keys)
        assert marked.sample.masked == tuple(entry for entry, _ in expected)
        for key in keys:
            sampled[key] += 1
        in_flight.append((number, keys))
        while constraints.owing:
            if (masks := constraints.masks()) is not None:
                assert masks.number == number
                assert list(masks.bits) == [count for _, count in expected]
            else:
                take_one()
        if alive and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(alive)))
            alive.discard(gone)
            bound.pop(gone, None)
            constraints.drop(gone)
