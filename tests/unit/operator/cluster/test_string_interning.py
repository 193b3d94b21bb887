"""Objects that came one by one hold the same words once, and are otherwise what they were."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.operator.cluster import string_interning as words
from octavo.operator.cluster.string_interning import MAX_LENGTH, StringInterner

TEXT = '{"metadata": {"name": "chat-0", "labels": {"app": "octavo-worker"}}, "list": ["octavo-worker", 1, null, true]}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=2 * MAX_LENGTH),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


def test_what_was_parsed_twice_is_held_once() -> None:
    interner = StringInterner()
    one, other = (interner.interned(json.loads(TEXT)) for _ in range(2))
    assert one == other and one is not other
    assert all(mine is yours for mine, yours in zip(one, other, strict=True))
    assert one["metadata"]["labels"]["app"] is other["list"][0]


@given(JSON)
def test_nothing_else_changes(value: object) -> None:
    before = json.dumps(value)
    assert json.dumps(StringInterner().interned(value)) == before == json.dumps(value)


def test_ever_new_words_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_STRINGS", 100)
    interner = StringInterner()
    for number in range(1000):
        interner.interned({f"key-{number}": f"value-{number}"})
        assert len(interner._known) <= 102
