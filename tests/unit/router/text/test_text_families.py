"""The text of any tokens, for three families of tokenizers: streamed it equals the whole, to the character.

A run of byte tokens is one text to the tokenizers library: one broken byte breaks all of the run. A stream has shown
what came before, so runs are compared up to their first broken byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.router.vocabularies import byte_level, files, metaspace, unigram
from tokenizers import Tokenizer

from octavo.router.answers.answer import Answer
from octavo.router.answers.delta import Delta, Usage
from octavo.router.answers.generation import Generation
from octavo.router.answers.tally import Tally
from octavo.router.jobs.generation import LENGTH, STOP, RequestError
from octavo.router.text.detokenise import Detokeniser, MarkedDetokeniser
from octavo.router.text.tokenizer import ModelTokenizer

BROKEN = RequestError(502, "server_error", "stream_cut", "lost")


@dataclass(frozen=True)
class Family:
    """bytes: the tokens of single bytes, for families that fall back to them; the others' tokens are in `words`."""

    tokenizer: Tokenizer
    model: ModelTokenizer
    words: tuple[int, ...]
    bytes: tuple[int, ...]

    def whole(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def spelt(self, character: str) -> list[int]:
        """A character byte by byte."""
        return [self.bytes[byte] for byte in character.encode()]


def family(tokenizer: Tokenizer) -> Family:
    fallback = tuple(tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
    spelt = fallback if None not in fallback else ()
    words = tuple(token for token in range(tokenizer.get_vocab_size()) if token not in set(spelt))
    return Family(tokenizer, ModelTokenizer(files(tokenizer, None), 4096), words, spelt)


FAMILIES = {"byte level": family(byte_level()), "metaspace": family(metaspace()), "unigram": family(unigram())}
CHARACTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\ufffd")
SIZES = st.lists(st.integers(1, 6), max_size=30)


def tokens(kind: str, *, characters: bool = False) -> st.SearchStrategy[list[int]]:
    """Any tokens; bytes come as whole characters, as a model writes them. `characters`: no word is part of one."""
    family = FAMILIES[kind]
    choice = [token for token in family.words if not characters or "\ufffd" not in family.whole([token])]
    words = st.sampled_from(choice).map(lambda token: [token])
    parts = words | CHARACTERS.map(family.spelt) if family.bytes else words
    return st.lists(parts, max_size=30).map(lambda lists: [token for part in lists for token in part])


def streamed(detokeniser: Detokeniser, ids: Sequence[int], sizes: Sequence[int] = ()) -> list[str]:
    pieces, start = [], 0
    for size in [*sizes, *[1] * len(ids)]:
        pieces.append(detokeniser.push(ids[start : start + size]))
        start += size
    return [*pieces, detokeniser.flush()]


@pytest.mark.parametrize("kind", FAMILIES)
@given(data=st.data(), sizes=SIZES)
@settings(max_examples=80)
def test_the_joined_stream_equals_the_whole_decode(kind: str, data: st.DataObject, sizes: list[int]) -> None:
    ids = data.draw(tokens(kind))
    pieces = streamed(FAMILIES[kind].model.detokeniser(b""), ids, sizes)
    assert "".join(pieces) == FAMILIES[kind].whole(ids)


@pytest.mark.parametrize("kind", FAMILIES)
@given(text=st.text(CHARACTERS, max_size=30))
def test_no_piece_ends_inside_a_character(kind: str, text: str) -> None:
    family = FAMILIES[kind]
    ids = family.tokenizer.encode(text, add_special_tokens=False).ids
    pieces = streamed(family.model.detokeniser(b""), ids)
    assert "".join(pieces) == family.whole(ids)
    assert "\ufffd" not in "".join(pieces)


@pytest.mark.parametrize("kind", FAMILIES)
@given(data=st.data(), sizes=SIZES)
def test_broken_bytes_break_no_more_than_themselves(kind: str, data: st.DataObject, sizes: list[int]) -> None:
    family = FAMILIES[kind]
    ids = data.draw(st.lists(st.sampled_from(family.words + family.bytes), max_size=40))
    one, many = streamed(family.model.detokeniser(b""), ids), streamed(family.model.detokeniser(b""), ids, sizes)
    assert "".join(one) == "".join(many), "however they come"
    words = [token for token in ids if token in family.words]
    assert len("".join(one)) >= len(family.whole(words).strip()) - len(words), "and no word is lost"


@pytest.mark.parametrize("kind", FAMILIES)
def test_an_end_inside_a_character_shows_one_replacement(kind: str) -> None:
    family = FAMILIES[kind]
    ids = family.spelt("🌶") if family.bytes else family.tokenizer.encode("🌶").ids
    for size in range(1, len(ids)):
        text = "".join(streamed(family.model.detokeniser(b""), ids[:size]))
        assert text == "\ufffd" * len(text) and 1 <= len(text) <= size
    assert "".join(streamed(family.model.detokeniser(b""), ids)) == "🌶"


@pytest.mark.parametrize("kind", FAMILIES)
@given(data=st.data(), places=st.lists(st.integers(0, 40), max_size=4), sizes=SIZES)
def test_marks_stand_where_their_tokens_stood(
    kind: str, data: st.DataObject, places: list[int], sizes: list[int]
) -> None:
    """A control token that is shown changes nothing else."""
    family = FAMILIES[kind]
    control = next(iter(family.tokenizer.get_added_tokens_decoder()))
    ids = [token for token in data.draw(tokens(kind)) if token != control]
    for place in places:
        ids.insert(place % (len(ids) + 1), control)
    marked = MarkedDetokeniser(family.model.detokeniser(b""), {control: "\U0001fffe"})
    text = "".join(streamed(marked, ids, sizes))
    assert text.count("\U0001fffe") == len(places)
    if not places:
        assert text == family.whole(ids)
    elif "\ufffd" not in text:  # a mark inside a character's bytes ends it
        assert text.replace("\U0001fffe", "") == family.whole([token for token in ids if token != control])


class Shown:
    """An AnswerWriter that remembers."""

    begun = True

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.reason = ""

    def text(self, index: int, text: str) -> None:
        self.pieces.append(text)

    def delta(self, index: int, delta: Delta) -> None:
        raise AssertionError("plain text has no details")

    def finish(self, index: int, delta: Delta, reason: str) -> None:
        self.pieces.append(delta.text)
        self.reason = reason

    def end(self, usage: Usage) -> None:
        pass

    def failed(self, error: RequestError, held: Mapping[int, Delta]) -> None:
        self.pieces += [delta.text for delta in held.values()]

    def forget(self, index: int) -> bool:
        return False


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("end", ["stop", "length", "failure"])
async def test_stop_strings_cut_exactly_and_what_is_held_is_released(kind: str, end: str) -> None:
    family = FAMILIES[kind]

    @given(data=st.data(), sizes=SIZES)
    @settings(max_examples=40)
    def check(data: st.DataObject, sizes: list[int]) -> None:
        ids = data.draw(tokens(kind, characters=end == "failure"))  # a failure releases no half of a character
        whole = family.whole(ids)
        inside = st.integers(0, len(whole) - 1).map(lambda at: whole[at : at + 3]) if whole else st.nothing()
        stops = data.draw(st.lists(inside | st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=3))
        shown = answered(family, ids, sizes, stops, end)
        ends = [(whole.find(stop) + len(stop), -len(stop)) for stop in stops if stop in whole]
        if ends:
            first, size = min(ends)
            assert ("".join(shown.pieces), shown.reason) == (whole[: first + size], "stop")
        else:
            assert "".join(shown.pieces) == whole
            assert shown.reason == {"stop": "stop", "length": "length", "failure": ""}[end]

    check()


def answered(family: Family, ids: Sequence[int], sizes: Sequence[int], stops: Sequence[str], end: str) -> Shown:
    shown = Shown()
    answer = Answer(shown, 1, Tally(), lambda: None)
    generation = answer.join(Generation(answer, lambda: family.model.detokeniser(b""), stops))
    start = 0
    for size in sizes:
        generation.tokens(ids[start : start + size], 0, 0)
        start += size
    rest = ids[start:]
    if end == "failure":
        generation.tokens(rest, 0, 0)
        generation.failed(BROKEN)
    else:
        generation.tokens(rest, STOP if end == "stop" else LENGTH, 0)
    return shown
