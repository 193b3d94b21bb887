"""How long a step may become: streams that were there first are protected, a rush is read at once, users may decide."""

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.request import NewRequest, Request
from octavo.worker.scheduler.step_length import StepLength, StreamAges, step_length_of

GPU = step_length_of("cuda")


def request() -> Request:
    new = NewRequest(1, (1,), SamplingParams(), 4)
    return Request(new, arrival=1, total=5, tokens=[1])


def test_a_long_prompt_beside_established_streams_makes_a_step_almost_twice_as_long() -> None:
    assert GPU.allowed_s(0.008, long=True, waiting=3, established=16) == 1.9 * 0.008


def test_a_short_prompt_is_read_at_once() -> None:
    assert GPU.allowed_s(0.008, long=False, waiting=1, established=16) == GPU.at_once_s == 0.05


def test_the_more_wait_for_each_established_stream_the_longer_a_step_may_be() -> None:
    lengths = [GPU.allowed_s(0.008, True, waiting, established=4) for waiting in (1, 4, 8, 40, 400)]
    assert lengths[0] == lengths[1] < lengths[2] < lengths[3] < lengths[4] == GPU.longest_s


def test_beside_requests_that_came_with_it_a_prompt_is_read_in_full_steps() -> None:
    assert GPU.allowed_s(0.008, True, waiting=1, established=0) == 0.25


def test_a_full_step_is_long_against_decoding_even_where_decoding_is_slow() -> None:
    assert GPU.allowed_s(0.1, True, waiting=1, established=0) == 20 * 0.1


def test_an_interval_of_the_users_is_used_up_and_kept_whatever_waits() -> None:
    chosen = step_length_of("cuda", interval_s=0.02)
    for waiting, established in ((1, 16), (64, 1), (1, 0)):
        for long in (False, True):
            assert chosen.allowed_s(0.005, long, waiting, established) == 0.02
    assert chosen.at_once_s == 0.02


def test_prefill_goes_on_where_decoding_alone_takes_the_whole_interval() -> None:
    assert step_length_of("cuda", interval_s=0.02).allowed_s(0.03, True, 1, 16) == 1.25 * 0.03


def test_each_step_of_a_pipeline_gets_its_share() -> None:
    halves = step_length_of("cuda", 2), step_length_of("cuda", 2, 0.02)
    assert halves[0].short_s == GPU.short_s / 2 and halves[0].longest_s == GPU.longest_s / 2
    assert halves[1].interval_s == 0.01


def test_streams_are_established_beside_a_prompt_that_has_waited_for_less_than_half_of_their_time() -> None:
    ages, streams, prompt = StreamAges(), [request() for _ in range(3)], request()
    for stream in streams[:2]:
        ages.began(stream)
    ages.now_s = 10.0
    ages.began(streams[2])
    ages.now_s = 11.0
    ages.arrived(prompt)
    assert ages.established(prompt) == 3
    ages.now_s = 13.0  # it has waited for 2 s, they have decoded for 13, 13 and 3
    assert ages.established(prompt) == 2
    ages.ended(streams[0])
    assert ages.established(prompt) == 1
    ages.now_s = 23.0  # 12 s, 23 and 13
    assert ages.established(prompt) == 0


def test_requests_that_came_together_owe_each_other_nothing() -> None:
    ages, first, second = StreamAges(), request(), request()
    ages.arrived(first)
    ages.arrived(second)
    ages.now_s = 0.5
    ages.began(first)
    ages.now_s = 3.0
    assert ages.established(second) == 0


def test_a_cpu_reads_no_more_gently_than_its_target() -> None:
    assert step_length_of("cpu").allowed_s(0.004, True, waiting=1, established=9) == 0.05
    assert StepLength() == step_length_of("cpu")
