"""Each model has the share of requests that its groups are of all groups, evenly spread, as far as they have room."""

from collections import Counter

import pytest

from octavo.router.dispatch.rules.model_shares import ModelShares


def chosen(
    groups: dict[str, int], requests: int, full: tuple[str, ...] = (), shares: ModelShares | None = None
) -> list[str]:
    shares = ModelShares() if shares is None else shares
    return [shares.choose(groups, lambda digest: digest not in full) for _ in range(requests)]


@pytest.mark.parametrize("groups", [{"a": 1}, {"a": 3, "b": 1}, {"a": 1, "b": 1}, {"a": 5, "b": 2, "c": 1}])
def test_every_run_of_requests_is_shared_by_the_number_of_groups(groups: dict[str, int]) -> None:
    total = sum(groups.values())
    made = chosen(groups, 20 * total)
    for begin in range(0, len(made), total):
        assert Counter(made[begin : begin + total]) == groups


def test_a_model_without_room_is_passed_over_while_another_has_some() -> None:
    assert set(chosen({"a": 3, "b": 1}, 20, full=("a",))) == {"b"}
    assert Counter(chosen({"a": 3, "b": 1}, 20, full=("a", "b"))) == {"a": 15, "b": 5}, "all wait: by their shares"


def test_what_a_full_model_has_missed_is_not_made_up_for() -> None:
    """The group that was full would be full again at once."""
    shares = ModelShares()
    chosen({"a": 1, "b": 1}, 1000, full=("a",), shares=shares)
    after = Counter(chosen({"a": 1, "b": 1}, 20, shares=shares))
    assert 10 <= after["a"] <= 12


def test_a_model_that_comes_or_goes_changes_the_shares_at_once() -> None:
    shares = ModelShares()
    chosen({"a": 4}, 1000, shares=shares)
    assert Counter(chosen({"a": 3, "b": 1}, 40, shares=shares)) == {"a": 30, "b": 10}
    assert set(chosen({"b": 4}, 10, shares=shares)) == {"b"}
