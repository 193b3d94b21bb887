"""Stages are runs of layers, at least one each, and no split has a cheaper most expensive stage."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from octavo.worker.models.sharding.pipeline_split import split

COSTS = st.lists(st.integers(1, 50), min_size=1, max_size=9)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    costs = draw(COSTS)
    return costs, draw(st.integers(0, 60)), draw(st.integers(0, 200)), draw(st.integers(1, len(costs)))


def most(costs: list[int], embedding: int, head: int, begins: tuple[int, ...]) -> int:
    stages = [sum(costs[first:end]) for first, end in pairwise((*begins, len(costs)))]
    stages[0] += embedding
    stages[-1] += head
    return max(stages)


@given(pipelines())
def test_no_split_is_cheaper(pipeline: tuple[list[int], int, int, int]) -> None:
    costs, embedding, head, stages = pipeline
    found = split(*pipeline)
    assert len(found) == stages and all(found)
    assert [layer for part in found for layer in part] == list(range(len(costs)))
    others = ((0, *rest) for rest in combinations(range(1, len(costs)), stages - 1))
    least = min(most(costs, embedding, head, begins) for begins in others)
    assert most(costs, embedding, head, tuple(part.start for part in found)) == least
    assert split(*pipeline) == found


def test_the_head_counts_as_the_layers_that_it_weighs() -> None:
    assert split([10] * 8, 0, 20, 2) == (range(0, 5), range(5, 8))


def test_equal_layers_are_spread_evenly() -> None:
    assert [len(part) for part in split([10] * 12, 0, 0, 4)] == [3, 3, 3, 3]


def test_a_head_that_outweighs_all_leaves_the_others_even() -> None:
    assert [len(part) for part in split([10] * 7, 0, 1000, 4)] == [2, 2, 2, 1]


def test_a_deep_pipeline_of_many_layers_is_found_at_once() -> None:
    assert len(split([7] * 200, 0, 31, 64)) == 64
