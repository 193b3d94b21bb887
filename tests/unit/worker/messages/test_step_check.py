"""A step that a rank cannot compute rightly is refused, with the row and the reason; right ones pass."""

from dataclasses import replace

import pytest

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Scored, Step
from octavo.worker.messages.step_check import InvalidStep, StepCheck

NO_SAMPLE = Sample()


def new_check() -> StepCheck:
    return StepCheck(slots=4, blocks=12, block_size=4, max_batch_tokens=16, context_length=24)


def admit(slot: int, tokens: int) -> Admit:
    return Admit(slot, tuple(range(tokens)), SamplingParams(), 0)


def step(*rows: tuple[int, int, int], admits=(), blocks=(), zeroed=(), sample=NO_SAMPLE) -> Step:  # type: ignore[no-untyped-def]
    slots, starts, counts = zip(*rows, strict=True) if rows else ((), (), ())
    return Step(1, Forward(tuple(admits), tuple(blocks), slots, starts, counts, tuple(zeroed)), sample)


FIRST = step(
    (0, 0, 6), (1, 0, 8), admits=(admit(0, 6), admit(1, 9)), blocks=(Blocks(0, 0, (0, 1)), Blocks(1, 0, (2, 3, 4)))
)


def two_requests() -> StepCheck:
    """Slot 0 decodes from position 6 on, slot 1 has one of 9 prompt tokens left."""
    check = new_check()
    check.check(FIRST)
    return check


def test_chunks_decode_rows_growth_and_shared_blocks_pass() -> None:
    check = two_requests()
    check.check(step((0, 6, 1), (1, 8, 1), sample=Sample((0, 1), (0, 0))))
    check.check(step((0, 7, 1), (1, 9, 1), sample=Sample((0, 1), (1, 1))))
    check.check(step((0, 8, 1), (1, 10, 1), blocks=(Blocks(0, 2, (5,)),), sample=Sample((0, 1), (2, 2))))
    shares = admit(2, 9)
    check.check(step((0, 9, 1), (1, 11, 1), (2, 8, 1), admits=(shares,), blocks=(Blocks(2, 0, (2, 3, 6)),)))
    check.check(step((2, 9, 1), (1, 12, 1), blocks=(Blocks(1, 3, (7,)),)))
    check.check(step(zeroed=(11,)))


def test_what_a_request_that_left_has_computed_can_be_shared() -> None:
    check = two_requests()
    check.check(step((1, 4, 2), admits=(admit(1, 6),), blocks=(Blocks(1, 0, (2, 8)),)))
    with pytest.raises(InvalidStep, match="block 4 before it is not computed"):
        check.check(step((2, 4, 2), admits=(admit(2, 6),), blocks=(Blocks(2, 0, (4, 9)),)))


WRONG = {
    "row 1 (slot 1, start 8, count 0): no tokens": step((0, 6, 1), (1, 8, 0)),
    "rows of one token must come first": step((1, 8, 2), (0, 6, 1)),
    "a slot has two rows": step((0, 6, 1), (0, 7, 1)),
    "17 tokens, the most are 16": step((0, 6, 17)),
    "2 slots, 2 starts and 1 counts": Step(1, Forward((), (), (0, 1), (6, 8), (1,)), Sample()),
    "row 1 (slot 1, start 9, count 1): its slot's last row ended at 8": step((0, 6, 1), (1, 9, 1)),
    "row 0 (slot 0, start 5, count 1): its slot's last row ended at 6": step((0, 5, 1)),
    "row 0 (slot 3, start 0, count 1): its slot holds no request": step((3, 0, 1)),
    "row 0 (slot 9, start 0, count 1): its slot holds no request": step((9, 0, 1)),
    "row 0 (slot 0, start 6, count 3): its blocks cover 8 positions": step((0, 6, 3)),
    "slot 4 of 4 is admitted": step((4, 0, 1), admits=(admit(4, 1),)),
    "slot 2: 25 tokens in a context of 24": step((2, 0, 1), admits=(admit(2, 25),)),
    "slot 2 gets blocks and holds no request": step((0, 6, 1), blocks=(Blocks(2, 0, (9,)),)),
    "slot 0: blocks from entry 3 on, its table has 2": step((0, 6, 1), blocks=(Blocks(0, 3, (9,)),)),
    "slot 0: blocks (12,) of a pool of 12": step((0, 6, 1), blocks=(Blocks(0, 2, (12,)),)),
    "slot 0 holds block 1 twice": step((0, 6, 1), blocks=(Blocks(0, 2, (1,)),)),
    "block -1 of a pool of 12 is zeroed": step((0, 6, 1), zeroed=(-1,)),
    "row 1 (slot 1, start 8, count 1): its slot holds no request": step(
        (0, 6, 1), (1, 8, 1), blocks=(Blocks(0, 2, (4,)),)
    ),
    "row 0 (slot 0, start 6, count 1): its slot holds no request": step((0, 6, 1), zeroed=(0,)),
    "row 0 (slot 2, start 3, count 2): first of a request of 9 tokens, blocks of 4": step(
        (2, 3, 2), admits=(admit(2, 9),), blocks=(Blocks(2, 0, (9, 10, 11)),)
    ),
    "row 0 (slot 2, start 8, count 2): first of a request of 9 tokens": step(
        (2, 8, 2), admits=(admit(2, 9),), blocks=(Blocks(2, 0, (2, 3, 9)),)
    ),
    "row 0 (slot 2, start 8, count 1): block 1 before it is not computed": step(
        (2, 8, 1), admits=(admit(2, 9),), blocks=(Blocks(2, 0, (0, 1, 9)),)
    ),
    "row 0 (slot 2, start 8, count 1): block 3 before it is not computed": step(  # computed, at entry 1
        (2, 8, 1), admits=(admit(2, 9),), blocks=(Blocks(2, 0, (3, 2, 9)),)
    ),
    "row 0 (slot 2, start 4, count 2): its slot holds a block twice": step(
        (2, 4, 2), admits=(admit(2, 6),), blocks=(Blocks(2, 0, (2, 2)),)
    ),
    "1 rows are sampled with 2 counters": step((0, 6, 1), sample=Sample((0,), (0, 0))),
    "row 1 of 1 is sampled": step((0, 6, 1), sample=Sample((1,), (0,))),
    "sampled rows must rise, they are (1, 0)": step((0, 6, 1), (1, 8, 1), sample=Sample((1, 0), (0, 0))),
    "row 0 of 1: 2 positions from offset 0 on are scored": step((0, 6, 1), sample=Sample(scored=(Scored(0, 0, 2),))),
    "entries (1,) of 1 are masked": step((0, 6, 1), sample=Sample((0,), (0,), (), (1,))),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_step_is_refused_and_says_why(message: str) -> None:
    with pytest.raises(InvalidStep) as refusal:
        two_requests().check(replace(WRONG[message], number=7))
    assert str(refusal.value).startswith("step 7: ") and message in str(refusal.value)


def test_the_slots_of_a_refused_step_must_be_admitted_again() -> None:
    check = two_requests()
    with pytest.raises(InvalidStep):
        check.check(step((0, 6, 1), (1, 8, 0)))
    with pytest.raises(InvalidStep, match=r"slot 0, start 6, count 1\): its slot holds no request"):
        check.check(step((0, 6, 1)))
    check.check(FIRST)


def test_the_slot_of_refused_blocks_must_be_admitted_again_and_may_have_them_then() -> None:
    check = two_requests()
    with pytest.raises(InvalidStep, match="slot 0 holds block 9 twice"):
        check.check(step((1, 8, 1), blocks=(Blocks(0, 2, (8, 9, 9)),)))
    with pytest.raises(InvalidStep, match=r"slot 0, start 6, count 1.: its slot holds no request"):
        check.check(step((0, 6, 1)))
    check.check(step((0, 0, 12), admits=(admit(0, 12),), blocks=(Blocks(0, 0, (8, 9, 0)),)))


def test_micro_batches_take_turns_and_a_request_moves_between_them() -> None:
    check = two_requests()
    check.check(step((0, 6, 1)))
    check.check(step((1, 8, 1)))
    check.check(step((0, 7, 1)))
    check.check(step((1, 9, 1)))
    check.check(step((1, 10, 1), (0, 8, 1), blocks=(Blocks(0, 2, (5,)),)))
    check.check(step((0, 9, 1)))
    with pytest.raises(InvalidStep, match=r"slot 1, start 12, count 1.: its slot's last row ended at 11"):
        check.check(step((1, 12, 1)))


def test_a_shared_block_may_be_computed_by_a_request_of_the_other_micro_batch() -> None:
    check = two_requests()
    check.check(step((0, 6, 2)))
    shares = (admit(2, 6),), (Blocks(2, 0, (1, 6)),)
    with pytest.raises(InvalidStep, match="block 1 before it is not computed"):  # at entry 1 of slot 0
        check.check(step((2, 4, 2), admits=shares[0], blocks=shares[1]))
    check.check(step((3, 8, 1), admits=(admit(3, 9),), blocks=(Blocks(3, 0, (0, 1, 7)),)))
