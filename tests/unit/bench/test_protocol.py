"""What servers send is understood however it is cut; what they should not send is named, not raised."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.arithmetic.protocol import Api, BadEvent, Event, Events, Usage, event, first_model, message, whole

STREAM = b': ping\n\ndata: {"a": 1}\r\n\r\nevent: x\ndata:{"b": "\xc4\x8f"}\n\ndata: [DONE]\n\n'


def chat(delta: dict[str, Any], reason: str | None = None) -> Event:
    return event(json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}).encode(), True)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    events = Events()
    seen = [one for a, b in pairwise(places) for one in events.feed(STREAM[a:b])]
    assert seen == [b'{"a": 1}', b'{"b": "\xc4\x8f"}', b"[DONE]"]


def test_every_event_of_a_completion_with_choices_is_a_chunk_as_a_token_may_have_no_text() -> None:
    seen = event(b'{"choices": [{"text": "", "finish_reason": "length"}], "usage": null}', False)
    assert seen == Event(has_content=True, tokens=True, text="", finished=True)


def test_the_event_of_the_usage_is_no_chunk() -> None:
    body = b'{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}'
    assert event(body, False) == event(body, True) == Event(usage=Usage(7, 3))


@pytest.mark.parametrize(
    ("delta", "reason", "tokens"),
    [
        ({"role": "assistant", "content": ""}, None, False),
        ({"role": "assistant", "content": None}, None, False),
        ({"role": "assistant"}, None, False),
        ({}, "stop", False),
        ({"content": None}, "stop", False),
        ({"content": ""}, None, True),
        ({"content": "a"}, None, True),
        ({"role": "assistant", "content": "a"}, None, True),
        ({"reasoning_content": "hm"}, None, True),
        ({"tool_calls": [{"index": 0}]}, None, True),
    ],
)
def test_a_chats_opening_and_closing_events_carry_no_token(
    delta: dict[str, Any], reason: str | None, tokens: bool
) -> None:
    seen = chat(delta, reason)
    assert (seen.has_content, seen.tokens, seen.finished) == (True, tokens, reason is not None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"error": {"message": "the worker died", "code": 503}}', "the worker died"),
        (b'{"error": "full"}', "full"),
        (b"{", "not JSON: {"),
        (b"[1]", "not an object"),
        (b'{"choices": [1]}', "strange choices"),
        (b'{"choices": {"a": 1}}', "strange choices"),
        (b'{"choices": [{"index": 0}]}', "without a delta"),
    ],
)
def test_an_event_that_is_none_of_an_answer_is_named(data: bytes, said: str) -> None:
    with pytest.raises(BadEvent, match=said):
        event(data, True)


@given(st.binary(max_size=200) | st.from_regex(rb'\{"(choices|usage|error)": [\[{]?.{0,20}', fullmatch=True))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for read in (lambda: event(data, True), lambda: event(data, False), lambda: whole(data), lambda: first_model(data)):
        try:
            read()
        except BadEvent as error:
            assert str(error)
    said = message(data)
    assert len(said) < 500 and "\n" not in said and said.encode().decode() == said, "a short line that can be printed"


def test_a_message_is_one_short_line() -> None:
    assert message(b'{"error": {"message": "no\\n  such model"}}') == "no such model"
    assert len(message(b"<html>" + b"x" * 10_000)) < 500


def test_a_request_holds_what_was_asked_for_and_nothing_more() -> None:
    plain = json.loads(Api(False, "m", False, {}).body([1, 2], 8, stream=True))
    assert plain == {
        "model": "m", "prompt": [1, 2], "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True}
    }  # fmt: skip
    full = json.loads(Api(True, "m", True, {"temperature": 0.5, "stream": "x"}).body("hi", 8, stream=False))
    assert full == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 8,
        "ignore_eos": True, "temperature": 0.5, "stream": "x",
    }  # fmt: skip


def test_an_answer_in_one_piece_has_text_and_usage() -> None:
    body = {"choices": [{"text": "abc"}], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}
    assert whole(json.dumps(body).encode()) == ("abc", Usage(2, 3))
    with pytest.raises(BadEvent, match="choices and usage"):
        whole(b'{"choices": []}')


def test_the_first_model_is_that_of_the_list() -> None:
    assert first_model(b'{"data": [{"id": "a"}, {"id": "b"}]}') == "a"
    with pytest.raises(BadEvent, match="no model"):
        first_model(b'{"data": []}')
