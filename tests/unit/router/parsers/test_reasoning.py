"""Reasoning is separated from content however the text comes, and no marker is shown."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.router.parsers.reasoning import ReasoningParser, thought_of


def parsed(pieces: Sequence[str], opened: bool = False) -> tuple[str, str]:
    made = ReasoningParser(opened)
    pieces_of = [made.push(piece) for piece in pieces] + [made.finish()]
    return "".join(thought for thought, _ in pieces_of), "".join(content for _, content in pieces_of)


CASES = [
    ("<think>\n2+2\nis 4\n</think>\n\nIt is 4.\n", False, "2+2\nis 4", "It is 4.\n"),
    ("2+2\n</think>\nIt is 4.", True, "2+2", "It is 4."),
    ("\n\n<think>a</think>b", False, "a", "b"),
    ("It is 4.", False, "", "It is 4."),
    ("  It is <think>4</think>.", False, "", "  It is <think>4</think>."),
    ("<think>never\nended", False, "never\nended", ""),
    ("never ended </thi", True, "never ended </thi", ""),
    ("<thin", False, "", "<thin"),
    ("<think></think>", False, "", ""),
    ("</think>a", True, "", "a"),
    ("<think>a < b </ c</think>d", False, "a < b </ c", "d"),
    ("<think>a</think>b</think>c", False, "a", "b</think>c"),
    (" \n", False, "", " \n"),
    ("", True, "", ""),
]


@pytest.mark.parametrize(("text", "opened", "reasoning", "content"), CASES)
@given(places=st.lists(st.integers(0, 60), max_size=8))
@settings(max_examples=20)
def test_reasoning_is_separated_from_content_however_the_text_comes(
    text: str, opened: bool, reasoning: str, content: str, places: list[int]
) -> None:
    marks = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(marks)]
    assert parsed(pieces, opened) == parsed(list(text), opened) == (reasoning, content)


@given(
    parts=st.lists(st.sampled_from(["<think>", "</think>", "<th", "a", "\n", " ", "k>"]), max_size=12),
    opened=st.booleans(),
)
def test_nothing_but_markers_and_blank_is_left_out(parts: list[str], opened: bool) -> None:
    text = "".join(parts)
    reasoning, content = parsed([text], opened)
    assert parsed(list(text), opened) == (reasoning, content)
    assert (reasoning + content).count("a") == text.count("a")


def test_a_prompt_may_begin_the_reasoning_or_leave_it_out() -> None:
    assert thought_of("<|assistant|><think>\n") == thought_of("<think>") == "begun"
    assert thought_of("<think>\n\n</think>\n\n") == "over"
    assert thought_of("assistant\n") == "none"
