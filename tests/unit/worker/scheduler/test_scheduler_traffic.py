"""Prompts of 1 to 2,000 tokens over shared prefixes, a pool that is too short, cancels, stops, and a step-time model
that learns from a noisy clock: every step can be computed, and every request gets the tokens that it gets alone."""

import random
from collections import deque

import pytest
from support.worker.paged_device import VOCABULARY, PagedDevice, right_answer

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.output import Output
from octavo.worker.messages.request import Finish, NewRequest
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.scheduler.scheduler import Limits, Scheduler
from octavo.worker.scheduler.step_length import step_length_of

CONTEXT, BLOCK = 2200, 16
PROMPTS, REQUESTS = 40, 64  # so that prompts come again while their prefixes are cached, and when they no longer are
SHARED = (0, 0, 16, 150, 600, 1200)


def requests(rng: random.Random) -> list[NewRequest]:
    shared = [[rng.randrange(90) for _ in range(length)] for length in SHARED]
    owns = [rng.choice((1, 2, 15, 16, 17, 90, 280, rng.randint(1, 800))) for _ in range(PROMPTS)]
    prompts = [(*rng.choice(shared), *(rng.randrange(90) for _ in range(own))) for own in owns]
    made = []
    for key in range(REQUESTS):
        stops = frozenset(rng.sample(range(VOCABULARY), rng.choice((0, 0, 1))))
        length, priority = rng.choice((1, 2, 16, rng.randint(1, 90))), rng.choice((0, 0, 0, 1))
        made.append(NewRequest(key, rng.choice(prompts), SamplingParams(), length, stops, priority=priority))
    return made


def seconds(rng: random.Random, step: Step) -> float:
    """A clock of a busy machine: right within a factor, and now and then far off."""
    return (0.02 + 1e-3 * step.forward.tokens) * rng.lognormvariate(0.0, 0.4) * rng.choice((1, 1, 1, 1, 1, 1, 1, 20))


@pytest.mark.parametrize("seed", range(4))
def test_every_step_can_be_computed_and_every_answer_is_right(seed: int) -> None:
    rng = random.Random(seed)
    stages, device_name = rng.choice((1, 1, 1, 2)), rng.choice(("cpu", "cpu", "cuda"))
    limits = Limits(
        blocks=rng.randint(CONTEXT // BLOCK + 1, 260), block_size=BLOCK, max_batch_tokens=rng.choice((128, 512)),
        max_requests=rng.choice((24, 64)), context_length=CONTEXT, depth=stages + 1, stages=stages,
        prefix_caching=rng.random() < 0.8,
    )  # fmt: skip
    scheduler = Scheduler(limits, step_length_of(device_name, stages))
    device, arriving = PagedDevice(BLOCK), requests(rng)
    news = {new.key: new for new in arriving}
    shown: dict[int, list[int]] = {key: [] for key in news}
    ends: dict[int, Output] = {}
    cancelled: set[int] = set()
    in_flight: deque[tuple[Step, StepResult]] = deque()
    while arriving or in_flight or scheduler.load().running or scheduler.load().waiting:
        for _ in range(rng.choice((0, 1, 3, 10))):
            if arriving:
                scheduler.submit(arriving.pop())
        if rng.random() < 0.01 and (live := sorted(news.keys() - ends.keys() - cancelled)):
            cancelled.add(key := rng.choice(live))
            scheduler.cancel(key)
            arriving = [new for new in arriving if new.key != key]
        while (step := scheduler.schedule()) is not None:
            in_flight.append((step, device.run(step)))
        assert not scheduler.refused()
        if in_flight:
            step, result = in_flight.popleft()
            for output in scheduler.update(result):
                assert output.key not in cancelled and output.key not in ends
                shown[output.key] += output.ids
                if output.finish is not Finish.NOT_FINISHED:
                    ends[output.key] = output
            scheduler.observe(step.number, seconds(rng, step))
    assert ends.keys() | cancelled == news.keys()
    for key, end in ends.items():
        assert (shown[key], end.finish) == right_answer(news[key], CONTEXT)
