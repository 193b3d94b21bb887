"""Every format says the same of an answer by its fast way for plain text, piece by piece, and whole."""

import json
from collections.abc import Callable

import pytest

from octavo.router.answers.delta import Delta, Usage
from octavo.router.answers.formatters.chat import ChatFormatter
from octavo.router.answers.formatters.completions import CompletionFormatter
from octavo.router.answers.formatters.formatter import Choice, Formatter, Identity
from octavo.router.answers.formatters.response_object import ResponseObject
from octavo.router.answers.formatters.responses import ResponseFormatter
from octavo.router.parsers.answer_parser import Reasoning
from octavo.router.parsers.tools.events import Content

IDENTITY = Identity("chat", "resp_1", 1, "m")
FORMATTERS: dict[str, Callable[[], Formatter]] = {
    "completion": lambda: CompletionFormatter(IDENTITY, None, False),
    "completion with usage": lambda: CompletionFormatter(IDENTITY, None, True),
    "chat": lambda: ChatFormatter(IDENTITY, None, False),
    "chat with usage": lambda: ChatFormatter(IDENTITY, None, True),
    "response": lambda: ResponseFormatter(ResponseObject(IDENTITY, {})),
}


@pytest.mark.parametrize("kind", FORMATTERS)
@pytest.mark.parametrize("text", ["a", 'quote " and \\ and \n', "\u00e9\U0001f336", "</tool_call>"])
def test_the_fast_way_for_text_makes_the_bytes_of_a_delta(kind: str, text: str) -> None:
    fast, general = FORMATTERS[kind](), FORMATTERS[kind]()
    for index in (0,) if kind == "response" else (0, 7):
        assert fast.first(index) == general.first(index)
        for _ in range(2):
            assert fast.text(index, text) == general.delta(index, Delta(text))


@pytest.mark.parametrize("kind", ["chat", "response"])
def test_content_parts_make_the_events_of_plain_text(kind: str) -> None:
    parsed, plain = FORMATTERS[kind](), FORMATTERS[kind]()
    parsed.first(0), plain.first(0)
    said = [event.partition(b"data: ")[2] for event in parsed.delta(0, Delta(parts=[Content("ab")])).split(b"\n\n")]
    wanted = [event.partition(b"data: ")[2] for event in plain.text(0, "ab").split(b"\n\n")]
    assert [json.loads(event) for event in said if event] == [json.loads(event) for event in wanted if event]


def test_a_piece_of_which_a_format_shows_nothing_is_no_event() -> None:
    assert FORMATTERS["response"]().delta(0, Delta(parts=[Reasoning("hidden")])) == b""
    assert FORMATTERS["chat"]().delta(0, Delta(parts=[])) == b""


@pytest.mark.parametrize("kind", FORMATTERS)
def test_a_whole_answer_has_text_reason_and_usage(kind: str) -> None:
    body = json.loads(FORMATTERS[kind]().whole([Choice(0, Delta("hello"), "length")], Usage(3, 2, 1)))
    if kind == "response":
        assert body["output"][0]["content"][0]["text"] == "hello" and body["status"] == "incomplete"
        assert body["usage"]["input_tokens_details"] == {"cached_tokens": 1}
        return
    (choice,) = body["choices"]
    text = choice["message"]["content"] if kind.startswith("chat") else choice["text"]
    assert (text, choice["finish_reason"], choice["logprobs"]) == ("hello", "length", None)
    assert body["usage"]["total_tokens"] == 5
