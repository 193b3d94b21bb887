"""A pipeline's stages work on different requests at once: what its steps may and may not have in common."""

import random
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.request import NewRequest
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.scheduler.scheduler import Limits, Scheduler

LIMITS = Limits(blocks=4000, block_size=4, max_batch_tokens=64, max_requests=64, context_length=1000, watermark=0.0)
stages = st.integers(2, 4)


class Pipeline:
    """Keeps stages+1 steps under way and remembers them."""

    def __init__(self, stages: int, limits: Limits = LIMITS) -> None:
        self.scheduler = Scheduler(replace(limits, stages=stages, depth=stages + 1))
        self.random = random.Random(5)
        self.steps: list[Step] = []
        self.in_flight: deque[Step] = deque()
        self.keys = 0

    def submit(self, max_tokens: int = 900, prompt: int = 3) -> int:
        self.keys += 1
        tokens = (self.keys, *self.random.choices(range(100), k=prompt - 1))
        self.scheduler.submit(NewRequest(self.keys, tokens, SamplingParams(), max_tokens))
        return self.keys

    def fill(self) -> None:
        while (step := self.scheduler.schedule()) is not None:
            self.in_flight.append(step)
            self.steps.append(step)

    def run(self, rounds: int) -> list[Step]:
        """The steps issued meanwhile."""
        first = len(self.steps)
        for _ in range(rounds):
            self.fill()
            if not self.in_flight:
                break
            step = self.in_flight.popleft()
            ids = tuple(self.random.choices(range(100), k=len(step.sample.rows)))
            self.scheduler.update(StepResult(step.number, ids))
        return self.steps[first:]


def assert_overlap(steps: list[Step], stages: int, requests: int) -> None:
    """Any `stages` steps in a row have each request once, evenly: no row reads a token that earlier ones sample."""
    for first in range(len(steps) - stages + 1):
        rows = [step.forward.slots for step in steps[first : first + stages]]
        assert len({slot for slots in rows for slot in slots}) == sum(map(len, rows)) == requests
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


@given(stages, st.integers(4, 40), st.data())
@settings(deadline=None, max_examples=40)
def test_stages_overlap_and_have_even_micro_batches_once_all_have_joined(
    stages: int, requests: int, data: st.DataObject
) -> None:
    pipeline = Pipeline(stages)
    for _ in range(requests):
        pipeline.submit(prompt=data.draw(st.integers(1, 30)))
        pipeline.run(data.draw(st.integers(0, 2)))
    while pipeline.scheduler.load().prompt_tokens:
        pipeline.run(1)
    pipeline.run(2 * stages)
    assert_overlap(pipeline.run(4 * stages), stages, requests)


@given(stages, st.integers(8, 40), st.data())
@settings(deadline=None, max_examples=40)
def test_micro_batches_are_even_again_soon_after_any_requests_have_left(
    stages: int, requests: int, data: st.DataObject
) -> None:
    pipeline = Pipeline(stages)
    keys = [pipeline.submit(max_tokens=data.draw(st.sampled_from((10, 900)))) for _ in range(requests)]
    pipeline.run(15 * stages)
    for key in data.draw(st.sets(st.sampled_from(keys))):
        pipeline.scheduler.cancel(key)
    left = pipeline.scheduler.load().running
    if left >= stages:
        pipeline.run(4 * stages)
        assert_overlap(pipeline.run(4 * stages), stages, left)


def test_steps_hardly_ever_wait_for_the_one_before_while_requests_come_and_go() -> None:
    pipeline = Pipeline(2)
    sampled: dict[int, int] = {}
    for _ in range(600):
        if pipeline.random.random() < 0.2:
            pipeline.submit(max_tokens=pipeline.random.randrange(5, 60), prompt=pipeline.random.randrange(1, 30))
        pipeline.run(1)
    waits = 0
    for step in pipeline.steps:
        for admit in step.forward.admits:
            sampled.pop(admit.slot, None)
        fresh = {slot for slot in step.forward.slots if sampled.get(slot, -1) == step.number - 1}
        waits += bool(fresh)
        sampled.update((step.forward.slots[row], step.number) for row in step.sample.rows)
    busy = sum(len(step.forward.slots) > 2 for step in pipeline.steps)
    assert busy > 300 and waits < len(pipeline.steps) / 20


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_a_lonely_request_has_a_row_in_every_step_that_is_under_way(stages: int) -> None:
    pipeline = Pipeline(stages)
    pipeline.submit(max_tokens=100)
    pipeline.fill()
    assert [step.forward.starts for step in pipeline.in_flight] == [(0,), *((3 + step,) for step in range(stages))]
    assert [step.forward.starts for step in pipeline.run(20)] == [(3 + stages + step,) for step in range(19)]


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_two_requests_take_turns_however_many_stages_there_are(stages: int) -> None:
    pipeline = Pipeline(stages)
    for _ in range(2):
        pipeline.submit()
    pipeline.run(10)
    for before, after in zip(steps := pipeline.run(12), steps[1:], strict=False):
        assert len(before.forward.slots) == 1 and before.forward.slots != after.forward.slots


def test_chunks_of_a_long_prompt_ride_with_every_micro_batch() -> None:
    pipeline = Pipeline(2)
    for _ in range(8):
        pipeline.submit()
    pipeline.run(20)
    pipeline.submit(prompt=600)
    steps = [step for step in pipeline.run(8) if max(step.forward.counts) > 1]
    assert {len(step.forward.slots) for step in steps} == {5}
    chunks = [step.forward.counts[-1] for step in steps[:-1]]
    assert len(chunks) > 4 and min(chunks) > 0.8 * max(chunks)


def test_a_prompt_beside_one_that_decodes_goes_into_steps_of_its_own_too() -> None:
    pipeline = Pipeline(2)
    pipeline.submit()
    pipeline.run(6)
    pipeline.submit(prompt=300)
    steps = pipeline.run(5)[1:]
    assert [len(step.forward.slots) for step in steps[:4]] in ([1, 2, 1, 2], [2, 1, 2, 1])


def test_as_many_requests_run_as_all_micro_batches_have_tokens() -> None:
    pipeline = Pipeline(2, replace(LIMITS, max_batch_tokens=4))
    for _ in range(20):
        pipeline.submit(prompt=1)
    pipeline.run(20)
    assert pipeline.scheduler.load().running == 8
    assert {step.forward.tokens for step in pipeline.run(6)} == {4}
