"""The step-time model learns a device, and says how much prefill a step of a given length holds."""

import random

import pytest

from octavo.worker.scheduler.step_time_model import StepTimeModel, Work


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


def test_a_mixed_step_stays_within_what_is_allowed() -> None:
    step_times = learned(StepTimeModel())
    decode = Work(32, 32 * 500)
    count = step_times.room(decode, 1000, 0.03)
    assert 500 < count < 2000
    assert step_times.seconds(decode.with_chunk(1000, count)) <= 0.03
    assert step_times.seconds(decode.with_chunk(1000, count + 2)) > 0.03


def test_a_chunk_deep_in_a_long_prompt_is_smaller() -> None:
    step_times = learned(StepTimeModel())
    decode = Work(32, 32 * 500)
    assert step_times.room(decode, 100_000, 0.03) < step_times.room(decode, 0, 0.03)


def test_a_second_chunk_gets_only_what_the_first_left() -> None:
    step_times = learned(StepTimeModel())
    decode = Work(32, 32 * 500)
    first = step_times.room(decode, 0, 0.03)
    assert step_times.room(decode.with_chunk(0, first // 2), 0, 0.03) == pytest.approx(first / 2, abs=first / 10)
    assert step_times.room(decode.with_chunk(0, first), 0, 0.03) <= 1


def padded(work: Work) -> float:
    """Like a GPU whose steps with chunks run in graphs of 128, 256 and 512 tokens."""
    tokens = next((size for size in (128, 256, 512) if size >= max(work.tokens, 2 * work.rows)), work.tokens)
    return device(Work(tokens if work.attended else work.tokens, work.reads, work.attended))


def test_chunks_end_where_a_graph_does_and_not_where_the_next_one_begins() -> None:
    step_times, rng = StepTimeModel((128, 256, 512)), random.Random(3)
    for _ in range(400):
        rows = rng.randrange(1, 140)
        work = Work(rows, rows * 500, rows=rows)
        if rng.random() < 0.8:
            work = work.with_chunk(rng.randrange(4000), rng.randrange(2, 600))
        step_times.observe(work, padded(work))
    decode = Work(16, 16 * 500, rows=16)
    whole = padded(decode.with_chunk(0, 240))
    assert step_times.room(decode, 0, 1.1 * whole) == 240
    assert step_times.room(decode, 0, 0.9 * whole) == 112
    many = Work(100, 100 * 500, rows=100)  # more than a graph of 128 tokens has rows
    assert step_times.room(many, 0, 1.1 * padded(many.with_chunk(0, 156))) == 156
    assert step_times.room(many, 0, 0.8 * padded(many.with_chunk(0, 156))) == 0


def test_a_step_beyond_all_graphs_is_as_long_as_is_allowed() -> None:
    step_times, rng = StepTimeModel((128,)), random.Random(4)
    for _ in range(300):
        work = Work(8, 4000, rows=8).with_chunk(rng.randrange(4000), rng.randrange(2, 2000))
        step_times.observe(work, device(work))
    decode = Work(8, 4000, rows=8)
    count = step_times.room(decode, 0, 0.03)
    assert 1000 < count < 1500 and step_times.seconds(decode.with_chunk(0, count)) <= 0.03


def test_what_takes_longer_than_is_allowed_has_no_room() -> None:
    step_times = learned(StepTimeModel())
    assert step_times.room(Work(32, 32 * 500), 0, 0.001) == 0


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
        assert step_times.room(work, 5, 0.05) >= 0


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


def test_how_long_decoding_takes_is_measured_again_now_and_then() -> None:
    step_times, mixed = StepTimeModel(), Work(4, 400).with_chunk(0, 100)
    for _ in range(200):
        step_times.observe(mixed, device(mixed))
    assert step_times.decoding_is_stale
    for _ in range(9):
        step_times.observe(Work(4, 400), device(Work(4, 400)))
    assert not step_times.decoding_is_stale
    assert step_times.decoding_s(Work(4, 400)) == pytest.approx(device(Work(4, 400)), rel=0.1)
