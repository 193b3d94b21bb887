"""Graphs are captured small first, named only once they are there, and hold what replays in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.worker.messages.graphs import Graph, GraphBook, mixed_sizes, parse, wanted
from octavo.worker.messages.step import EAGER, Forward, Sample, Step


def step(counts: list[int]) -> Step:
    rows = tuple(range(len(counts)))
    return Step(1, Forward(slots=rows, starts=(0,) * len(counts), counts=tuple(counts)), Sample())


def full_book(max_requests: int = 64, max_batch_tokens: int = 512) -> GraphBook:
    book = GraphBook(graph.name for graph in wanted(max_requests, max_batch_tokens))
    number = 0
    while not book.complete:
        number += 1
        book.capture(number)
        book.returned(number)
    return book


def test_a_graph_is_named_only_after_the_step_that_captured_it_has_returned() -> None:
    book = GraphBook(["decode-4"])
    assert book.pick(step([1, 1])) == EAGER
    assert book.capture(7) == "decode-4"
    assert book.pick(step([1, 1])) == EAGER
    book.returned(6)
    assert book.pick(step([1, 1])) == EAGER
    assert book.returned(7), "none is missing now"
    assert book.pick(step([1, 1])) == "decode-4"


def test_decode_graphs_come_first_and_small_ones_before_large_ones() -> None:
    graphs = wanted(64, 512)
    decode = [graph for graph in graphs if graph.rows == graph.tokens]
    assert graphs[: len(decode)] == decode == sorted(decode)
    assert [graph.tokens for graph in graphs[len(decode) :]] == sorted(graph.tokens for graph in graphs[len(decode) :])


def test_sizes_of_steps_with_chunks_are_in_the_names_of_graphs() -> None:
    assert mixed_sizes(graph.name for graph in wanted(64, 512)) == (128, 256, 512)
    assert mixed_sizes(["decode-1", "decode-128"]) == ()


@given(st.integers(1, 300), st.integers(16, 4096))
def test_every_decode_step_has_a_graph_once_all_are_captured(max_requests: int, max_batch_tokens: int) -> None:
    names = [graph.name for graph in wanted(max_requests, max_batch_tokens)]
    assert len(names) == len(set(names))
    most = min(max_requests, max_batch_tokens)
    assert full_book(max_requests, max_batch_tokens).pick(step([1] * most)) == f"decode-{most}"


@given(st.lists(st.integers(1, 200), min_size=1, max_size=64))
def test_what_is_picked_holds_the_step(counts: list[int]) -> None:
    counts.sort(key=lambda count: count > 1)
    name = full_book().pick(step(counts))
    if name == EAGER:
        assert sum(counts) > 512 or len(counts) > 32
    else:
        graph = parse(name)
        assert graph.rows >= len(counts) and graph.tokens >= sum(counts)


@pytest.mark.parametrize("name", ["", "decode", "decode-x", "mixed-5", "prefill-5", "decode-1x2"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        parse(name)


@given(st.integers(1, 1024), st.integers(1, 1024))
def test_names_are_read_back(rows: int, tokens: int) -> None:
    graph = Graph(rows, tokens)
    assert parse(graph.name) == graph
