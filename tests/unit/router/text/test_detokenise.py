"""Text from tokens: the same whole or streamed, and never half a character."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.router.vocabularies import byte_level, files, metaspace

from octavo.router.text.detokenise import BYTE_OF, Detokeniser, MarkedDetokeniser, WindowDetokeniser
from octavo.router.text.tokenizer import ModelTokenizer

BYTES = byte_level()
SPACED = metaspace()
MODEL = ModelTokenizer(files(BYTES), 4096)
SPACED_MODEL = ModelTokenizer(files(SPACED, None), 4096)
IDS = st.lists(st.integers(0, BYTES.get_vocab_size() - 1), max_size=60)


def streamed(detokeniser: Detokeniser, ids: Sequence[int], sizes: Sequence[int] = ()) -> list[str]:
    """Pieces as they come, `sizes` ids at a time and then one by one."""
    pieces, start = [], 0
    for size in [*sizes, *[1] * len(ids)]:
        pieces.append(detokeniser.push(ids[start : start + size]))
        start += size
    return [*pieces, detokeniser.flush()]


@given(IDS, st.lists(st.integers(1, 7), max_size=20))
def test_any_ids_of_a_byte_level_vocabulary_stream_to_what_the_tokenizer_decodes(
    ids: list[int], sizes: list[int]
) -> None:
    pieces = streamed(MODEL.detokeniser(b""), ids, sizes)
    assert "".join(pieces) == BYTES.decode(ids, skip_special_tokens=True)


@given(st.text(max_size=40))
def test_no_piece_of_a_text_shows_half_a_character(text: str) -> None:
    ids = BYTES.encode(text).ids
    pieces = streamed(MODEL.detokeniser(b""), ids)
    assert "".join(pieces) == text
    assert all(("\ufffd" in piece) <= ("\ufffd" in text) for piece in pieces)


def test_an_end_inside_a_character_shows_one_replacement() -> None:
    ids = BYTES.encode("🌶").ids
    assert len(ids) > 1
    assert "".join(streamed(MODEL.detokeniser(b""), ids[:-1])) == "\ufffd"


@pytest.mark.parametrize("text", ["is the house", "the quick brown fox é 日本 is", "  two  spaces "])
def test_spaces_of_metaspace_tokens_survive_streaming(text: str) -> None:
    prompt = SPACED.encode("in the king")
    ids = SPACED.encode(text, add_special_tokens=False).ids
    pieces = streamed(WindowDetokeniser(SPACED, prompt.ids), ids)
    whole = SPACED.decode(prompt.ids + ids).removeprefix(SPACED.decode(prompt.ids))
    assert "".join(pieces) == whole
    assert not any("\ufffd" in piece for piece in pieces)


@given(st.lists(st.sampled_from(range(3, SPACED.get_vocab_size())), max_size=40), st.lists(st.integers(1, 5)))
def test_metaspace_text_does_not_depend_on_how_many_came_together(ids: list[int], sizes: list[int]) -> None:
    prompt = b""
    assert "".join(streamed(SPACED_MODEL.detokeniser(prompt), ids, sizes)) == "".join(
        streamed(SPACED_MODEL.detokeniser(prompt), ids)
    )


@given(st.text(alphabet="the quick brown fox é日🌶", max_size=30))
def test_a_metaspace_text_streams_whole(text: str) -> None:
    ids = SPACED.encode(text, add_special_tokens=False).ids
    assert "".join(streamed(WindowDetokeniser(SPACED, []), ids)) == SPACED.decode(ids)


def test_the_window_does_not_grow_with_broken_bytes() -> None:
    detokeniser = WindowDetokeniser(SPACED, [])
    broken = SPACED.token_to_id("<0xF0>")
    streamed(detokeniser, [broken] * 500)
    assert len(detokeniser._window) < 40


@pytest.mark.parametrize("detokeniser", [MODEL.detokeniser(b""), WindowDetokeniser(BYTES, [])], ids=["bytes", "window"])
def test_a_mark_stands_behind_what_was_held_before_it(detokeniser: Detokeniser) -> None:
    control, half = next(iter(BYTES.get_added_tokens_decoder())), BYTES.encode("🌶").ids[:-1]
    marked = MarkedDetokeniser(detokeniser, {control: "<mark>"})
    assert "".join(streamed(marked, [*half, control, *BYTES.encode("a").ids])) == "\ufffd<mark>a"


def test_the_byte_alphabet_is_complete() -> None:
    assert sorted(BYTE_OF.values()) == list(range(256))
