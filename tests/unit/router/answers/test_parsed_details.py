"""Details of an answer whose text is parsed: every token has them once and in order, for fast and slow clients."""

import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from support.router.letters import Letters, Pipe

from octavo.router.answers.answer import Answer
from octavo.router.answers.detailed_generation import DetailedGeneration, Details
from octavo.router.answers.formatters.chat import ChatFormatter
from octavo.router.answers.formatters.details import DetailOptions
from octavo.router.answers.formatters.formatter import Identity
from octavo.router.answers.parsed_answer import ParsedAnswer
from octavo.router.answers.tally import Tally
from octavo.router.answers.writers.bounds import BUFFER_BYTES
from octavo.router.answers.writers.event_stream_writer import EventStreamWriter
from octavo.router.answers.writers.json_writer import JsonWriter
from octavo.router.jobs.generation import STOP, RequestError
from octavo.router.parsers.answer_parser import AnswerParser
from octavo.router.parsers.reasoning import ReasoningParser
from octavo.router.parsers.tools.hermes import HermesParser
from octavo.router.text.logprobs import TokenText, text_of

IDENTITY = Identity("chat", "id", 1, "m")
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
ALL = f"<think>why</think>So: {CALL}"


class Uncut(Pipe):
    def abort(self) -> None:
        raise AssertionError("no client is cut off")


def name(token: int) -> TokenText:
    return text_of(chr(token).encode())


def parser() -> AnswerParser:
    return AnswerParser(ReasoningParser(False), HermesParser(), lambda: "call_1")


class Bench:
    def __init__(self, stream: bool = True, stop: Sequence[str] = ()) -> None:
        self.pipe, options = Uncut(), DetailOptions(name, top=0, token_ids=True)
        formatter = ChatFormatter(IDENTITY, options, False)
        self.whole = JsonWriter(formatter)
        streamed = EventStreamWriter(self.pipe, b"", False, formatter, Tally())  # type: ignore[arg-type]  # a fake
        answer = Answer(ParsedAnswer(streamed if stream else self.whole, parser), 3, Tally(), lambda: None)
        details = Details(reader=Letters, top=0, prompt_ids=(7,))
        self.one = DetailedGeneration(answer, Letters, stop, details)
        answer.join(self.one)

    def give(self, text: str, finish: int = 0) -> None:
        ids = [ord(character) for character in text]
        self.one.scores(b"".join(struct.pack("<IIf", 1, token, -1.0) for token in ids), b"")
        self.one.tokens(ids, finish, 0)

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for event in self.pipe.events for choice in event.get("choices", ())]

    def joined(self, key: str) -> str:
        return "".join(choice["delta"].get(key) or "" for choice in self.choices)

    @property
    def tokens(self) -> str:
        entries = [one for choice in self.choices if choice["logprobs"] for one in choice["logprobs"]["content"]]
        return "".join(one["token"] for one in entries)

    @property
    def ids(self) -> str:
        return "".join(chr(token) for choice in self.choices for token in choice.get("token_ids", ()))


@pytest.mark.parametrize("read", [True, False])
async def test_every_token_has_details_once_and_in_order_for_fast_and_slow_clients(read: bool) -> None:
    bench = Bench()
    for character in ALL:
        bench.give(character)
        bench.pipe.unread = 0 if read else BUFFER_BYTES + 1
    bench.give("", STOP)
    assert bench.tokens == bench.ids == ALL
    assert (bench.joined("reasoning"), bench.joined("content")) == ("why", "So: ")
    pieces = [call["function"]["arguments"] for one in bench.choices for call in one["delta"].get("tool_calls", ())]
    assert "".join(pieces) == '{"a": 1}'
    assert [one["finish_reason"] for one in bench.choices if one["finish_reason"]] == ["tool_calls"]
    assert [event["prompt_token_ids"] for event in bench.pipe.events if "prompt_token_ids" in event] == [[7]]
    assert read == (len(bench.choices) > 20), "what waited was merged"


async def test_the_whole_answer_says_the_same() -> None:
    bench = Bench(stream=False)
    bench.give(ALL)
    bench.give("", STOP)
    body = json.loads(bench.whole.body())
    (choice,) = body["choices"]
    assert "".join(one["token"] for one in choice["logprobs"]["content"]) == ALL
    assert "".join(map(chr, choice["token_ids"])) == ALL and body["prompt_token_ids"] == [7]
    assert (choice["message"]["content"], choice["message"]["reasoning"]) == ("So: ", "why")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("read", [True, False])
async def test_a_failure_releases_what_parser_stop_string_and_slow_client_held(read: bool) -> None:
    bench = Bench(stop=("<tool_cat",))
    bench.give("So")
    bench.pipe.unread = 0 if read else BUFFER_BYTES + 1
    bench.give(": <tool_ca")
    bench.one.failed(RequestError(502, "server_error", "stream_cut", "lost"))
    assert bench.joined("content") == bench.tokens == "So: <tool_ca"
    assert "error" in bench.pipe.events[-1] and all(not one["finish_reason"] for one in bench.choices)
