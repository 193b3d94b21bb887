"""Stop strings: nothing of one is shown, nothing else is held back, however the text was cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.router.text.stops import StopFinder

TEXTS = st.text(alphabet="abc", max_size=40)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), min_size=1, max_size=4)


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    """The string that is complete first wins; of several the longest."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            return text[: end - max(map(len, done))], True
    return text, False


def cut(text: str, places: list[int]) -> list[str]:
    marks = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(marks)]


@given(TEXTS, STOPS, st.lists(st.integers(0, 100)))
def test_the_verdict_does_not_depend_on_the_pieces(text: str, stops: list[str], places: list[int]) -> None:
    finder = StopFinder(stops)
    shown, hit = "", False
    for piece in cut(text, places):
        new, hit = finder.push(piece)
        shown += new
        if hit:
            break
    if not hit:
        shown += finder.flush()
    assert (shown, hit) == expected(text, stops)


@given(TEXTS, STOPS)
def test_only_a_proper_prefix_of_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    if expected(text, stops)[1]:
        return
    finder = StopFinder(stops)
    shown = "".join(finder.push(character)[0] for character in text)
    held = text[len(shown) :]
    assert text.startswith(shown)
    longest = max((size for stop in stops for size in range(len(stop)) if text.endswith(stop[:size])), default=0)
    assert len(held) == longest


@pytest.mark.parametrize(("stop", "shown"), [("DEFGHIJ", "ABC"), ("FG", "ABCDE"), ("J", "ABCDEFGHI")])
def test_a_stop_string_over_several_tokens_or_inside_one(stop: str, shown: str) -> None:
    finder = StopFinder([stop])
    pieces = [finder.push(token) for token in ("ABC", "DEF", "G", "HI", "J")]
    end = next(index for index, (_, hit) in enumerate(pieces) if hit)
    assert "".join(text for text, _ in pieces[: end + 1]) == shown
