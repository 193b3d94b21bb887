"""The step-time model learns a device and keeps prefill within what those who decode can bear."""

import random

import pytest

from octavo.worker.scheduler.step_time_model import StepTimeModel, Work, step_time_model_of


def device(work: Work) -> float:
    return 0.004 + 2e-5 * work.tokens + 3e-8 * work.reads + 1e-9 * work.attended


def some_work(rng: random.Random) -> Work:
    rows = rng.randrange(1, 64)
    work = Work(rows, rows * rng.randrange(10, 2000))
    return work.with_chunk(rng.randrange(0, 4000), rng.randrange(1, 2000)) if rng.random() < 0.5 else work


def learned(step_times: StepTimeModel, steps: int = 300) -> StepTimeModel:
    rng = random.Random(7)
    for _ in range(steps):
        work = some_work(rng)
        step_times.observe(work, device(work) * rng.uniform(0.97, 1.03))
    return step_times


def test_predictions_come_close_to_a_device_that_was_watched() -> None:
    step_times, rng = learned(StepTimeModel()), random.Random(8)
    for _ in range(100):
        work = some_work(rng)
        assert step_times.seconds(work) == pytest.approx(device(work), rel=0.25)


def test_a_new_model_expects_a_slow_device() -> None:
    assert StepTimeModel().seconds(Work().with_chunk(0, 2048)) > 2


def test_a_mixed_step_stays_within_the_target() -> None:
    step_times = learned(StepTimeModel(target_s=0.03))
    decode = Work(32, 32 * 500)
    count = step_times.room(decode, decode, 1000)
    assert 500 < count < 2000
    assert step_times.seconds(decode.with_chunk(1000, count)) <= 0.03
    assert step_times.seconds(decode.with_chunk(1000, count + 2)) > 0.03


def test_a_chunk_deep_in_a_long_prompt_is_smaller() -> None:
    step_times = learned(StepTimeModel(target_s=0.03))
    decode = Work(32, 32 * 500)
    assert step_times.room(decode, decode, 100_000) < step_times.room(decode, decode, 0)


def test_a_second_chunk_gets_only_what_the_first_left() -> None:
    step_times = learned(StepTimeModel(target_s=0.03))
    decode = Work(32, 32 * 500)
    first = step_times.room(decode, decode, 0)
    assert step_times.room(decode, decode.with_chunk(0, first // 2), 0) == pytest.approx(first / 2, abs=first / 10)
    assert step_times.room(decode, decode.with_chunk(0, first), 0) <= 1


def test_prefill_goes_on_where_decoding_alone_misses_the_target() -> None:
    step_times = learned(StepTimeModel(target_s=0.001, stretch=2.0, least=16))
    decode = Work(32, 32 * 500)
    count = step_times.room(decode, decode, 0)
    assert count > 16
    assert step_times.seconds(decode.with_chunk(0, count)) <= 2 * step_times.seconds(decode)


def test_a_long_prompt_goes_gently_and_a_short_one_at_once() -> None:
    step_times = learned(StepTimeModel(target_s=0.03, stretch=2.0, long_prompt_s=0.001))
    decode = Work(4, 4 * 500)
    assert step_times.is_long(0, 20_000) and not step_times.is_long(0, 500)
    long_prompt = step_times.room(decode, decode, 0, long_prompt=True)
    assert step_times.seconds(decode.with_chunk(0, long_prompt)) <= 2 * step_times.seconds(decode)
    assert step_times.seconds(decode.with_chunk(0, step_times.room(decode, decode, 0))) > 0.025


def test_the_more_wait_for_their_first_token_the_longer_a_step_may_be() -> None:
    step_times = learned(StepTimeModel(target_s=0.001, stretch=2.0))
    decode = Work(4, 4 * 500)
    rooms = [step_times.room(decode, decode, 0, crowd=crowd) for crowd in (0.1, 1.0, 5.0, 60.0)]
    assert rooms[0] == rooms[1] < rooms[2] < rooms[3]
    assert step_times.seconds(decode.with_chunk(0, rooms[2])) <= 10 * step_times.seconds(decode)


def test_some_prefill_always_fits() -> None:
    step_times = StepTimeModel(target_s=0.0, stretch=0.0, least=16)
    decode = Work(1, 10)
    assert step_times.room(decode, decode, 0) == 16
    assert step_times.room(decode, decode.with_chunk(0, 16), 0) == 0


def test_one_long_pause_does_not_make_the_device_slow() -> None:
    step_times = learned(StepTimeModel())
    work = Work(32, 32 * 500)
    before = step_times.seconds(work)
    step_times.observe(work, 30.0)
    assert step_times.seconds(work) < 4 * before


def test_a_device_that_became_slower_is_noticed() -> None:
    step_times, rng = learned(StepTimeModel()), random.Random(9)
    for _ in range(400):
        work = some_work(rng)
        step_times.observe(work, 3 * device(work))
    work = Work(32, 32 * 500)
    assert step_times.seconds(work) == pytest.approx(3 * device(work), rel=0.3)


def test_odd_measurements_never_break_a_prediction() -> None:
    step_times, rng = StepTimeModel(), random.Random(10)
    for _ in range(3000):
        work = rng.choice((Work(), Work(1, 1), some_work(rng)))
        step_times.observe(work, rng.choice((0.0, 1e-6, 0.01, 100.0)))
        assert 0 <= step_times.seconds(work) < 1e4
        assert step_times.room(work, work, 5) >= 1


def test_the_first_long_prompt_of_a_large_model_is_not_taken_for_a_stuck_rank() -> None:
    """A device 40 times as slow as expected, that has only decoded so far: 10 x the patience must cover its prefill."""
    step_times, prompt = StepTimeModel(), Work().with_chunk(0, 512)
    for position in range(50):
        step_times.observe(Work(1, position), 0.8)
    for _ in range(20):
        assert 10 * step_times.timeout(prompt) > 40.0
        step_times.observe(prompt, 40.0)
    assert step_times.timeout(prompt) < 80.0


def test_patience_with_steps_of_a_known_size_is_their_prediction() -> None:
    step_times = learned(StepTimeModel())
    work = Work(32, 32 * 500)
    assert step_times.timeout(work) == step_times.seconds(work)


def gpu(decode: Work, work: Work) -> float:
    """Like a GPU with a model of 8 billion weights: it reads them while it computes a few tokens."""
    weights = max(0.0043, 2.6e-5 * work.tokens)
    return weights + 3.5e-8 * decode.reads + 1.05e-9 * work.attended


def test_beside_long_prompts_99_of_100_steps_take_at_most_two_and_a_half_times_as_long() -> None:
    step_times, rng = step_time_model_of("cuda", least=16), random.Random(5)
    for count in (1, 16, 64, 512, 2048, 8192):
        work = Work().with_chunk(0, count)
        step_times.observe(work, gpu(Work(), work))
    contexts, quiet, loud, computed = 16 * 128, list[float](), list[float](), 0
    start = length = 0
    for step in range(2000):
        decode = work = Work(16, contexts)
        if step >= 400:  # then one after the other
            if start == length:
                start, length = 0, rng.randrange(8000, 32000)
            count = min(length - start, step_times.room(decode, decode, start, long_prompt=True))
            work, start = decode.with_chunk(start, count), start + count
            computed += count
        seconds = gpu(decode, work)
        (loud if step >= 400 else quiet).append(seconds)
        step_times.observe(work, seconds * rng.uniform(0.98, 1.02))
        contexts += 16
    assert sorted(loud)[len(loud) * 99 // 100] <= 2.5 * sorted(quiet)[len(quiet) * 99 // 100]
    assert computed / sum(loud) > 15_000, "prompts are starved"
