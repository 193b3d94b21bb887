"""The groups get requests in turn, whatever their load and their caches."""

from collections import Counter

import pytest

from octavo.router.dispatch.policies.candidate import Candidate
from octavo.router.dispatch.policies.registry import policy
from octavo.router.dispatch.policies.round_robin import choose


def group(last_sent: int, pending: int = 0, cached: int = 0) -> Candidate:
    return Candidate(pending, 0, cached, 0, last_sent)


def turns(count: int, open_groups: list[list[int]]) -> list[int]:
    """The group of each request in order. open_groups: groups that are candidates, by request."""
    last_sent, chosen = [0] * count, []
    for number, candidates in enumerate(open_groups, start=1):
        chosen.append(candidates[choose(100, [group(last_sent[index]) for index in candidates])])
        last_sent[chosen[-1]] = number
    return chosen


def test_requests_spread_evenly_over_all_groups() -> None:
    assert turns(3, [[0, 1, 2]] * 7) == [0, 1, 2, 0, 1, 2, 0]


def test_a_group_that_is_no_candidate_is_skipped_and_is_next_once_it_is_one_again() -> None:
    assert turns(3, [[0, 1, 2], [0, 2], [0, 2], [0, 1, 2], [0, 1, 2]]) == [0, 2, 0, 1, 2]
    assert Counter(turns(3, [[0, 2]] * 10)) == {0: 5, 2: 5}


def test_neither_load_nor_cache_counts() -> None:
    assert choose(100, [group(2), group(1, pending=100_000), group(3, cached=99)]) == 1


def test_a_policy_that_does_not_exist_is_refused_with_the_choices() -> None:
    with pytest.raises(
        ValueError, match=r"policy 'nearest' does not exist; choose one of: prefix-affinity, round-robin"
    ):
        policy("nearest")
