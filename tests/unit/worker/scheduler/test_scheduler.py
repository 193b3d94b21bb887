"""What the scheduler promises, one case at a time."""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from support.worker.paged_device import CURSED, is_finite, next_token, right_answer, word
from support.worker.spoilt_device import SpoiltDevice

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.codec import encode
from octavo.worker.messages.output import Output
from octavo.worker.messages.request import Finish, NewRequest
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.scheduler.decode_batch import DecodeBatch
from octavo.worker.scheduler.scheduler import Invalid, Limits, Scheduler

LIMITS = Limits(blocks=64, block_size=4, max_batch_tokens=16, max_requests=8, context_length=64, watermark=0.0)


def request(key: int, prompt: Iterable[int], max_tokens: int = 4, stop: Iterable[int] = (), **more: int) -> NewRequest:
    return NewRequest(key, tuple(prompt), SamplingParams(), max_tokens, frozenset(stop), **more)  # type: ignore[arg-type]


class Engine:
    """A scheduler with a simulated device, `depth` steps under way whenever there is work."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.scheduler = Scheduler(limits)
        self.device = SpoiltDevice(limits.block_size)
        self.in_flight: deque[tuple[Step, StepResult]] = deque()
        self.steps: list[Step] = []
        self.outputs: dict[int, list[Output]] = {}

    def issue(self) -> Step | None:
        step = self.scheduler.schedule()
        if step is not None:
            self.steps.append(step)
            self.in_flight.append((step, self.device.run(step)))
        return step

    def finish(self) -> None:
        for output in self.scheduler.update(self.in_flight.popleft()[1]):
            self.outputs.setdefault(output.key, []).append(output)

    def run(self, rounds: int = 1000) -> None:
        for _ in range(rounds):
            while self.issue():
                pass
            if not self.in_flight:
                return
            self.finish()

    def check(self, new: NewRequest) -> None:
        outputs = self.outputs[new.key]
        shown = [token for output in outputs for token in output.ids]
        assert (shown, outputs[-1].finish) == right_answer(new, self.limits.context_length)


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (request(1, []), "prompt"),
        (request(1, range(64)), "prompt"),
        (request(1, range(1000)), "prompt"),
        (request(1, [1], max_tokens=0), "max_tokens"),
        (request(1, [1], max_tokens=-1), "max_tokens"),
        (replace(request(1, [1], max_tokens=2), generated=(5, 6)), "generated"),
    ],
)
def test_a_request_that_can_never_run_is_refused_and_names_its_field(new: NewRequest, field: str) -> None:
    scheduler = Scheduler(LIMITS)
    with pytest.raises(Invalid) as refusal:
        scheduler.submit(new)
    assert refusal.value.field == field
    assert scheduler.schedule() is None


def test_a_request_that_outgrows_the_pool_is_refused_before_it_starts() -> None:
    scheduler = Scheduler(replace(LIMITS, blocks=4))
    with pytest.raises(Invalid, match="prompt: 17 tokens do not fit the KV cache of 16"):
        scheduler.submit(request(1, range(17)))
    with pytest.raises(Invalid, match="max_tokens: 8 tokens after 10 do not fit the KV cache of 16"):
        scheduler.submit(request(2, range(10), max_tokens=8))
    scheduler.submit(request(3, range(10), max_tokens=7))


def test_a_key_in_use_is_refused_and_its_request_goes_on() -> None:
    engine = Engine()
    first = request(1, [1, 2, 3])
    engine.scheduler.submit(first)
    with pytest.raises(Invalid, match="key"):
        engine.scheduler.submit(request(1, [4, 5]))
    engine.run()
    engine.check(first)


def test_a_refused_prompt_holds_up_no_other() -> None:
    engine = Engine()
    with pytest.raises(Invalid):
        engine.scheduler.submit(request(0, range(500)))
    needing_block = [request(key, [key]) for key in range(1, 21)]
    for new in needing_block:
        engine.scheduler.submit(new)
    engine.run()
    for new in needing_block:
        engine.check(new)


def test_max_tokens_beyond_the_context_is_cut_to_it() -> None:
    engine = Engine()
    new = request(1, range(60), max_tokens=10_000)
    engine.scheduler.submit(new)
    engine.run()
    assert sum(len(output.ids) for output in engine.outputs[1]) == 4
    assert engine.outputs[1][-1].finish is Finish.LENGTH


def test_a_prompt_over_the_step_budget_runs_in_chunks() -> None:
    engine = Engine()
    new = request(1, range(50))
    engine.scheduler.submit(new)
    engine.run()
    engine.check(new)
    assert [step.forward.counts for step in engine.steps[:4]] == [(16,), (16,), (16,), (2,)]
    assert [len(step.sample.rows) for step in engine.steps[:4]] == [0, 0, 0, 1]


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 15, 16, 17])
def test_a_prompt_wholly_in_the_cache_still_computes_its_last_token(length: int) -> None:
    engine = Engine()
    first, second = request(1, range(length)), request(2, range(length))
    engine.scheduler.submit(first)
    engine.run()
    engine.scheduler.submit(second)
    engine.run()
    engine.check(second)
    hits = (length - 1) // 4 * 4
    assert (engine.outputs[1][0].cached, engine.outputs[2][0].cached) == (0, hits)
    assert engine.scheduler.load().cache_hits == hits


def test_equal_prompts_at_the_same_moment_are_both_right() -> None:
    engine = Engine()
    both = [request(1, range(8)), request(2, range(8))]
    for new in both:
        engine.scheduler.submit(new)
    engine.run()
    for new in both:
        engine.check(new)


def test_equal_prompts_at_the_same_moment_are_computed_once() -> None:
    engine = Engine()
    prompt = [(7 * index) % 40 for index in range(37)]  # three steps of 16
    news = [request(key, prompt) for key in range(4)]
    other = request(9, [1, 2, 3])
    for new in (*news, other):
        engine.scheduler.submit(new)
    engine.run()
    for new in (*news, other):
        engine.check(new)
    assert [engine.outputs[key][0].cached for key in (0, 1, 2, 3)] == [0, 36, 36, 36]
    first = next(step for step in engine.steps if any(admit.tokens == (1, 2, 3) for admit in step.forward.admits))
    assert first.number <= 3, "a request that waits for no other's blocks is not held up"


def test_a_request_that_waits_for_blocks_lets_no_less_important_one_pass() -> None:
    engine = Engine()
    prompt = [(7 * index) % 40 for index in range(37)]
    for new in (request(1, prompt, priority=2), request(2, prompt, priority=1), request(3, [1, 2, 3], priority=0)):
        engine.scheduler.submit(new)
    engine.run()
    admitted = [admit.tokens for step in engine.steps for admit in step.forward.admits]
    assert admitted == [tuple(prompt), tuple(prompt), (1, 2, 3)]


def test_log_probabilities_of_a_prompt_are_of_all_its_positions_in_pieces() -> None:
    engine = Engine()
    prompt = [(7 * index) % 40 for index in range(37)]
    asks = replace(request(1, prompt), sampling=SamplingParams(prompt_logprobs=0))
    engine.scheduler.submit(request(0, prompt))
    engine.run()
    engine.scheduler.submit(asks)
    engine.run()
    engine.check(asks)
    outputs = engine.outputs[1]
    pieces = [output.scores.prompt for output in outputs if output.scores is not None]
    assert b"".join(pieces) == b"".join(word(prompt[: end + 1]) for end in range(1, 37))
    assert [len(piece) // 4 for piece in pieces] == [16, 16, 4] and outputs[2].ids, "the last came with the first token"
    assert sum(output.cached for output in outputs) == 0


@pytest.mark.parametrize("caching", [True, False])
def test_log_probabilities_of_a_prompt_are_reported_once_though_it_is_preempted(caching: bool) -> None:
    engine = Engine(replace(LIMITS, blocks=16, prefix_caching=caching))
    prompts = [[(step * index) % 40 for index in range(21)] for step in (3, 7, 11)]
    asks = [
        replace(request(key, prompt, max_tokens=25), sampling=SamplingParams(logprobs=0, prompt_logprobs=0))
        for key, prompt in enumerate(prompts)
    ]
    for new in asks:
        engine.scheduler.submit(new)
    engine.run()
    assert engine.scheduler.load().preemptions > 0
    for new in asks:
        engine.check(new)
        whole = [*new.prompt, *(token for output in engine.outputs[new.key] for token in output.ids)]
        scores = [output.scores for output in engine.outputs[new.key] if output.scores is not None]
        assert b"".join(one.prompt + one.tokens for one in scores) == b"".join(
            word(whole[: end + 1]) for end in range(1, len(whole))
        )


@pytest.mark.parametrize("bad_step", [1, 2, 3])
def test_a_prompt_whose_logits_were_not_finite_is_computed_again_and_reported_once(bad_step: int) -> None:
    engine = Engine()
    prompt = [(7 * index) % 40 for index in range(37)]  # three steps
    asks = replace(request(1, prompt), sampling=SamplingParams(prompt_logprobs=0))
    engine.scheduler.submit(asks)
    run_spoilt(engine, lambda number: number == bad_step)
    engine.check(asks)
    pieces = [output.scores.prompt for output in engine.outputs[1] if output.scores is not None]
    assert b"".join(pieces) == b"".join(word(prompt[: end + 1]) for end in range(1, 37))


def test_a_prompt_whose_logits_are_never_finite_fails() -> None:
    engine = Engine()
    asks = replace(request(1, range(20)), sampling=SamplingParams(prompt_logprobs=0))
    engine.scheduler.submit(asks)
    run_spoilt(engine, lambda number: True)
    assert engine.outputs[1] == [Output(1, (), Finish.FAILED)]


def run_spoilt(engine: Engine, is_spoilt: Callable[[int], bool]) -> None:
    """To the end, with steps under way; the log-probabilities of some steps, by number, are not finite."""
    while True:
        while engine.issue():
            pass
        if not engine.in_flight:
            return
        step, result = engine.in_flight[0]
        if is_spoilt(step.number):
            engine.in_flight[0] = step, replace(result, prompts=(b"",) * len(result.prompts))
        engine.finish()


def test_a_cancelled_request_tells_no_log_probabilities_of_steps_under_way() -> None:
    engine = Engine()
    engine.scheduler.submit(replace(request(1, range(37)), sampling=SamplingParams(prompt_logprobs=0)))
    while engine.issue():
        pass
    engine.finish()
    engine.scheduler.cancel(1)
    engine.run()
    assert len(engine.outputs[1]) == 1


def test_an_answer_sent_back_as_a_prompt_hits_the_blocks_that_it_filled() -> None:
    engine = Engine()
    engine.scheduler.submit(request(1, range(6), max_tokens=10))
    engine.run()
    answer = [token for output in engine.outputs[1] for token in output.ids]
    second = request(2, [*range(6), *answer, 9])
    engine.scheduler.submit(second)
    engine.run()
    engine.check(second)
    assert engine.outputs[2][0].cached == 12  # 15 tokens were computed: the last sampled one never was


def test_the_log_probabilities_of_a_prompt_come_though_its_first_token_is_a_stop() -> None:
    prompt = list(range(9))
    asks = replace(
        request(1, prompt, stop=[next_token(prompt)]), sampling=SamplingParams(logprobs=0, prompt_logprobs=0)
    )
    engine = Engine()
    engine.scheduler.submit(asks)
    engine.run()
    (end,) = engine.outputs[1]
    assert (end.ids, end.finish) == ((), Finish.STOP) and end.scores is not None
    assert end.scores.prompt == b"".join(word(prompt[: end + 1]) for end in range(1, 9))
    assert end.scores.tokens == b"", "the token is not shown"


def test_a_request_that_is_preempted_counts_whole_among_the_tokens_to_compute() -> None:
    """What it had found in the prefix cache is its own no more."""
    engine = Engine(replace(LIMITS, blocks=12))
    engine.scheduler.submit(request(0, range(20), max_tokens=1))
    engine.run()
    for key in (1, 2):
        engine.scheduler.submit(request(key, [*range(20), key], max_tokens=25))
    while not engine.scheduler.load().preemptions:
        engine.issue()
        if len(engine.in_flight) == engine.limits.depth:
            engine.finish()
    while engine.in_flight:
        engine.finish()
    load = engine.scheduler.load()
    (victim,) = [key for key in (1, 2) if not engine.scheduler._requests.live[key].blocks]
    known = 21 + sum(len(output.ids) for output in engine.outputs[victim])
    assert (load.running, load.waiting, load.prompt_tokens) == (1, 1, known)


def test_without_prefix_caching_nothing_is_kept() -> None:
    engine = Engine(replace(LIMITS, prefix_caching=False))
    for key in (1, 2):
        engine.scheduler.submit(request(key, range(20)))
        engine.run()
    assert engine.outputs[2][0].cached == 0
    assert engine.scheduler.load().cached_blocks == 0


def test_cached_is_reported_once_on_the_first_output() -> None:
    engine = Engine()
    for key in (1, 2):
        engine.scheduler.submit(request(key, range(9)))
        engine.run()
    assert [output.cached for output in engine.outputs[2]] == [8, 0, 0, 0]


def test_the_device_gets_its_next_step_before_the_last_result_is_known() -> None:
    engine = Engine()
    engine.scheduler.submit(request(1, [1, 2, 3]))
    assert engine.issue() is not None
    second = engine.issue()
    assert second is not None and (second.forward.starts, second.sample.counters) == ((3,), (1,))
    assert engine.issue() is None


def test_nothing_after_a_stop_is_shown_though_steps_ran_ahead() -> None:
    for depth in (1, 2, 3):
        engine = Engine(replace(LIMITS, depth=depth))
        right, _ = right_answer(request(1, [1, 2, 3], 20), 64)
        stopped = request(1, [1, 2, 3], 20, stop=[right[2]])
        engine.scheduler.submit(stopped)
        engine.run()
        engine.check(stopped)
        assert engine.outputs[1][-1].finish is Finish.STOP


def test_a_length_stop_is_foreseen_and_computes_nothing_in_vain() -> None:
    engine = Engine(replace(LIMITS, depth=3))
    engine.scheduler.submit(request(1, [1, 2, 3], max_tokens=5))
    engine.run()
    assert sum(step.forward.tokens for step in engine.steps) == 3 + 4


def test_a_cancelled_request_shows_nothing_more_and_frees_its_blocks_at_once() -> None:
    engine = Engine()
    engine.scheduler.submit(request(1, range(10), max_tokens=40))
    engine.run(rounds=5)
    shown = len(engine.outputs[1])
    engine.scheduler.cancel(1)
    assert engine.scheduler.load().free_blocks == 64
    engine.run()
    assert len(engine.outputs[1]) == shown
    assert engine.scheduler.schedule() is None


def test_cancelling_an_unknown_key_does_nothing() -> None:
    Scheduler(LIMITS).cancel(77)


def test_logits_that_are_not_finite_end_their_request_alone() -> None:
    engine = Engine()
    cursed, healthy = request(1, [CURSED, 2], 60), request(2, [1, 2], 20)
    engine.scheduler.submit(cursed)
    engine.scheduler.submit(healthy)
    engine.run()
    engine.check(cursed)
    engine.check(healthy)
    assert engine.outputs[1][-1].finish is Finish.FAILED


def test_blocks_of_a_failed_request_are_not_found_again() -> None:
    engine = Engine()
    for key in (1, 2):
        engine.scheduler.submit(request(key, [*range(10), CURSED], max_tokens=40))
        engine.run()
    assert engine.outputs[1][-1].finish is Finish.FAILED
    assert engine.outputs[2][0].cached == 0


def failing(key: int, length: int, max_tokens: int = 1) -> NewRequest:
    """A request whose first sample is not finite."""
    prompt = next(prompt for last in range(1000) if not is_finite(prompt := [CURSED, *range(length - 2), last]))
    return request(key, prompt, max_tokens)


@pytest.mark.parametrize("max_tokens", [1, 20])
def test_blocks_of_a_failed_request_are_zeroed_by_the_next_step(max_tokens: int) -> None:
    engine = Engine()
    engine.scheduler.submit(failing(1, 10, max_tokens))
    step = engine.issue()
    assert step is not None
    engine.finish()
    beat = engine.scheduler.heartbeat()
    assert beat is not None and beat.forward.zeroed == tuple(sorted(step.forward.blocks[0].blocks))
    again = engine.issue()
    assert again is not None and again.forward.zeroed == tuple(sorted(again.forward.blocks[0].blocks))


def test_blocks_that_others_found_in_the_cache_are_zeroed_once_the_others_have_left() -> None:
    scheduler = Scheduler(replace(LIMITS, depth=3))
    scheduler.submit(request(1, range(16), 20))
    first = scheduler.schedule()
    scheduler.submit(request(2, range(14), 2))
    second = scheduler.schedule()
    assert first is not None and second is not None
    shared = first.forward.blocks[0].blocks[:3]
    assert second.forward.blocks[-1].blocks[:3] == shared
    scheduler.update(StepResult(1, (5,), failed=(0,)))
    scheduler.cancel(1)
    third = scheduler.schedule()
    own = {*first.forward.blocks[0].blocks[3:], *second.forward.blocks[0].blocks}
    assert third is not None and set(third.forward.zeroed) == own
    scheduler.update(StepResult(2, (5, 5)))
    scheduler.update(StepResult(3, (5,)))
    beat = scheduler.heartbeat()
    assert beat is not None and set(shared) <= set(beat.forward.zeroed)
    assert (load := scheduler.load()).free_blocks == LIMITS.blocks and not load.cached_blocks


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_a_request_that_gets_the_blocks_of_a_failed_one_does_not_fail(depth: int) -> None:
    engine = Engine(replace(LIMITS, blocks=12, depth=depth))
    news = [new for key in range(1, 9) for new in (request(10 * key, [key, 1, 2], 12), failing(key, 12))]
    for new in news:
        engine.scheduler.submit(new)
    engine.run()
    for new in news:
        engine.check(new)


def test_a_failure_is_believed_the_second_time_and_nothing_is_shown_before() -> None:
    engine = Engine()
    new = failing(1, 10, 20)
    engine.scheduler.submit(new)
    engine.run()
    assert engine.outputs[1] == [Output(1, (), Finish.FAILED)]
    assert [len(step.forward.admits) for step in engine.steps].count(1) == 2


def test_the_last_admitted_of_the_lowest_priority_is_preempted_and_comes_back() -> None:
    engine = Engine(replace(LIMITS, blocks=8))
    news = [request(1, [1], 16), request(2, [2], 16, priority=1), request(3, [3], 16, priority=1)]
    for new in news:
        engine.scheduler.submit(new)
    engine.run()
    for new in news:
        engine.check(new)
    assert engine.scheduler.load().preemptions > 0
    ends = sorted((1, 2, 3), key=lambda key: len(engine.outputs[key]))
    assert len(ends) == 3
    admits = [admit.tokens[0] for step in engine.steps for admit in step.forward.admits]
    assert admits[:3] == [2, 3, 1] and set(admits[3:]) == {1}


def test_running_requests_go_first_then_priority_then_arrival() -> None:
    engine = Engine(replace(LIMITS, max_requests=1))
    for new in (request(1, [1]), request(2, [2]), request(3, [3], priority=5), request(4, [4], priority=5)):
        engine.scheduler.submit(new)
    engine.run()
    admits = [admit.tokens for step in engine.steps for admit in step.forward.admits]
    assert admits == [(3,), (4,), (1,), (2,)]


def test_admission_leaves_the_watermark_free_while_others_run() -> None:
    engine = Engine(replace(LIMITS, blocks=10, watermark=0.3))
    engine.scheduler.submit(request(1, range(4), max_tokens=20))
    engine.scheduler.submit(request(2, range(10, 37), max_tokens=2))
    engine.issue()
    assert engine.scheduler.load().waiting == 1


def test_the_watermark_is_void_when_nothing_runs() -> None:
    engine = Engine(replace(LIMITS, blocks=10, watermark=0.3))
    new = request(1, range(37), max_tokens=2)
    engine.scheduler.submit(new)
    engine.run()
    engine.check(new)


def test_generated_tokens_count_for_limits_and_random_counters() -> None:
    engine = Engine()
    new = replace(request(1, [1, 2, 3], max_tokens=6), generated=(4, 5))
    engine.scheduler.submit(new)
    engine.run()
    engine.check(new)
    assert engine.steps[0].forward.admits[0].generated_before == 2
    assert [step.sample.counters for step in engine.steps] == [(2,), (3,), (4,), (5,)]


def test_a_heartbeat_runs_between_steps_and_changes_nothing() -> None:
    engine = Engine()
    new = request(1, [1, 2, 3])
    engine.scheduler.submit(new)
    engine.issue()
    beat = engine.scheduler.heartbeat()
    assert beat is not None and (beat.number, beat.forward.tokens) == (2, 0)
    assert engine.scheduler.heartbeat() is None
    engine.finish()
    assert not engine.scheduler.update(StepResult(2))
    engine.run()
    engine.check(new)


def test_a_result_that_is_not_the_awaited_one_is_an_error() -> None:
    engine = Engine()
    with pytest.raises(ValueError, match="result of step 1, awaited is none"):
        engine.scheduler.update(StepResult(1))
    engine.scheduler.submit(request(1, [1]))
    engine.issue()
    with pytest.raises(ValueError, match="result of step 2, awaited is 1"):
        engine.scheduler.update(StepResult(2, (5,)))
    with pytest.raises(ValueError, match="step 1: 2 ids for 1 sampled rows"):
        engine.scheduler.update(StepResult(1, (5, 6)))


def test_load_counts_prompt_tokens_until_their_step_returns() -> None:
    engine = Engine()
    engine.scheduler.submit(request(1, range(20)))
    counts = [engine.scheduler.load().prompt_tokens]
    for act in (engine.issue, engine.issue, engine.finish, engine.finish):
        act()
        counts.append(engine.scheduler.load().prompt_tokens)
    assert counts == [20, 20, 20, 4, 0]


def test_load_does_not_count_what_the_cache_holds() -> None:
    engine = Engine()
    engine.scheduler.submit(request(1, range(20)))
    engine.run()
    engine.scheduler.submit(request(2, range(20)))
    assert engine.scheduler.load().prompt_tokens == 4


def test_prefill_shrinks_while_others_decode_on_a_slow_device() -> None:
    engine = Engine(replace(LIMITS, blocks=600, max_batch_tokens=512, context_length=2048))
    engine.scheduler.submit(request(1, range(4), max_tokens=200))
    engine.run(rounds=3)
    for step in engine.steps:
        engine.scheduler.observe(step.number, 0.02 + 0.001 * step.forward.tokens)
    for _ in range(50):
        engine.run(rounds=1)
        step = engine.steps[-1]
        engine.scheduler.observe(step.number, 0.02 + 0.001 * step.forward.tokens)
    engine.scheduler.submit(request(2, range(1500)))
    engine.run(rounds=1)
    assert 8 <= engine.steps[-1].forward.tokens <= 128


@pytest.mark.parametrize("caching", [True, False])
def test_every_block_is_back_after_two_thousand_requests_a_third_of_which_vanish(caching: bool) -> None:
    rng = random.Random(11)
    limits = replace(LIMITS, blocks=80, max_batch_tokens=64, context_length=256, prefix_caching=caching)
    scheduler, steps = Scheduler(limits), deque[Step]()
    for key in range(2000):
        prompt = rng.choices(range(3), k=rng.randrange(1, 65))
        scheduler.submit(request(key, prompt, rng.randrange(1, 30), stop=[7]))
        if rng.random() < 1 / 3:
            scheduler.cancel(key - rng.randrange(8))
        for _ in range(rng.randrange(8) if key < 1999 else 100_000):
            while (step := scheduler.schedule()) is not None:
                steps.append(step)
            if not steps:
                break
            step = steps.popleft()
            scheduler.update(StepResult(step.number, tuple(rng.choices(range(40), k=len(step.sample.rows)))))
    load = scheduler.load()
    assert (load.free_blocks, load.running, load.waiting) == (80, 0, 0)
    assert load.preemptions > 0
    assert (load.cache_hits > 0) == (load.cached_blocks > 0) == caching


def test_heartbeats_teach_nothing_about_the_time_of_a_step() -> None:
    engine = Engine()
    engine.scheduler.submit(request(1, [1, 2, 3]))
    step = engine.issue()
    assert step is not None
    expected = engine.scheduler.predict(step)
    beat = engine.scheduler.heartbeat()
    assert beat is not None and 0 < engine.scheduler.predict(beat) < expected
    engine.scheduler.observe(beat.number, 1e-6)
    assert engine.scheduler.predict(step) == expected


@pytest.mark.parametrize("wrong", [{"blocks": 0}, {"depth": 0}, {"watermark": 1.0}, {"max_requests": -1}])
def test_limits_that_make_no_sense_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(LIMITS, **wrong)  # type: ignore[arg-type]


def test_a_step_never_outgrows_the_ring_however_many_long_cached_prompts_it_could_admit() -> None:
    blocks, length = 1 << 15, 300_000
    limits = Limits(blocks=blocks, block_size=16, max_batch_tokens=512, max_requests=64, context_length=500_000)
    scheduler = Scheduler(limits)
    prompt = tuple(range(length))
    new = NewRequest(1, prompt, SamplingParams(), 1)
    scheduler.submit(new)
    while (step := scheduler.schedule()) is not None:
        scheduler.update(StepResult(step.number, (1,) * len(step.sample.rows)))
        if step.sample.rows:
            break
    for key in range(2, 42):
        scheduler.submit(replace(new, key=key))
    largest = admitted = 0
    while admitted < 40:
        if (step := scheduler.schedule()) is None:
            break
        largest = max(largest, len(encode(step)))
        admitted += len(step.forward.admits)
        scheduler.update(StepResult(step.number, (1,) * len(step.sample.rows)))
    assert admitted == 40 and largest < 16 << 20


def test_a_step_never_outgrows_the_ring_however_large_the_sampling_of_waiting_requests() -> None:
    limits = Limits(blocks=1 << 12, block_size=16, max_batch_tokens=512, max_requests=256, context_length=1000)
    scheduler = Scheduler(limits)
    words = tuple(tuple(range(256)) for _ in range(256))
    sampling = SamplingParams(allowed_token_ids=tuple(range(1 << 14)), bad_words=words)
    for key in range(256):
        scheduler.submit(NewRequest(key, (1,), sampling, 1))
    largest = admitted = 0
    while admitted < 256 and (step := scheduler.schedule()) is not None:
        largest = max(largest, len(encode(step)))
        admitted += len(step.forward.admits)
        scheduler.update(StepResult(step.number, (1,) * len(step.sample.rows)))
    assert admitted == 256 and largest < 16 << 20


def test_a_step_that_would_be_wrong_is_not_issued_and_costs_its_own_requests_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(replace(LIMITS, depth=3))
    before = [request(key, range(key, key + 9), 12) for key in (1, 2)]
    for new in before:
        engine.scheduler.submit(new)
    for _ in range(2):
        engine.issue()
        engine.finish()
    later = request(3, range(20, 31), 12)
    engine.scheduler.submit(later)
    with monkeypatch.context() as fault:  # decode rows skip a position
        advance = DecodeBatch.advance
        fault.setattr(DecodeBatch, "advance", lambda *batch: (tuple(start + 1 for start in advance(*batch)[0]), (0, 0)))
        assert engine.issue() is None
    (refused,) = engine.scheduler.refused()
    assert "count 1): its slot's last row ended at" in refused.message
    assert set(refused.outputs.others) == {Output(key, (), Finish.FAILED) for key in (1, 2, 3)}
    again = [request(key, [*range(key - 3, key + 6)], 12) for key in (4, 5)]
    for new in again:
        engine.scheduler.submit(new)
    engine.run()
    for new in again:
        engine.check(new)
    assert engine.outputs.keys() == {1, 2, 4, 5} and not engine.scheduler.refused()
    load = engine.scheduler.load()
    assert (load.free_blocks, load.running, load.waiting) == (LIMITS.blocks, 0, 0)
