"""Which group gets a request: the one with the prompt in its cache, unless it has much more to do than the others."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.router.dispatch.policies.candidate import Candidate
from octavo.router.dispatch.policies.prefix_affinity import BETA, BOUND, choose


def group(pending: int = 0, decoding: int = 0, cached: int = 0, last_cold: int = 0) -> Candidate:
    return Candidate(pending, decoding, cached, last_cold)


def test_the_group_with_the_prompt_in_its_cache_is_taken() -> None:
    assert choose(1000, [group(), group(cached=960), group(cached=64)]) == 1


def test_a_group_with_the_prompt_but_far_more_to_do_is_left_alone() -> None:
    assert choose(1000, [group(pending=50), group(pending=5000, cached=960)]) == 0


def test_a_cache_worth_more_than_a_little_load_is_followed() -> None:
    assert choose(1000, [group(), group(pending=200, cached=960)]) == 1


def test_requests_that_decode_count_as_load() -> None:
    assert choose(100, [group(decoding=50), group(decoding=2)]) == 1


def test_an_unknown_prompt_goes_to_the_group_that_least_recently_took_one() -> None:
    assert choose(100, [group(last_cold=7), group(last_cold=3), group(last_cold=9)]) == 1


def test_of_groups_with_as_much_of_the_prompt_the_one_with_less_to_do_is_taken() -> None:
    busy, idle = group(pending=50, cached=64, last_cold=1), group(cached=64, last_cold=9)
    assert choose(1000, [busy, idle, group()]) == 1 and choose(1000, [idle, busy, group()]) == 0


def test_an_unknown_prompt_does_not_go_to_a_loaded_group_for_its_turn() -> None:
    assert choose(100, [group(last_cold=7), group(pending=9000, last_cold=3)]) == 0


@given(
    st.integers(1, 5000),
    st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 300), st.integers(0, 5000), st.integers(0, 50)),
        min_size=1,
        max_size=8,
    ),
)
def test_the_chosen_group_is_never_above_the_bound(tokens: int, groups: list[tuple[int, int, int, int]]) -> None:
    candidates = [group(p, d, min(c, tokens - 1), last) for p, d, c, last in groups]
    work = [c.pending_tokens + BETA * c.decoding + tokens - c.cached for c in candidates]
    assert work[choose(tokens, candidates)] <= BOUND * sum(work) / len(work)
