"""A chat answer of several parts: in order and whole for a slow client, restarted only while nothing was written."""

import itertools
import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.router.letters import Letters, Pipe

from octavo.router.answers.answer import Answer
from octavo.router.answers.formatters.chat import ChatFormatter
from octavo.router.answers.formatters.formatter import Identity
from octavo.router.answers.generation import Generation
from octavo.router.answers.parsed_answer import ParsedAnswer
from octavo.router.answers.tally import Tally
from octavo.router.answers.writers.bounds import BUFFER_BYTES, MERGED_CHARACTERS
from octavo.router.answers.writers.event_stream_writer import LAST_CHUNK, EventStreamWriter
from octavo.router.answers.writers.json_writer import JsonWriter
from octavo.router.jobs.generation import LENGTH, STOP, RequestError
from octavo.router.parsers.answer_parser import AnswerParser
from octavo.router.parsers.reasoning import ReasoningParser
from octavo.router.parsers.tools.hermes import HermesParser

IDENTITY = Identity("chat", "chatcmpl-1", 1, "m")
BROKEN = RequestError(502, "server_error", "stream_cut", "lost")
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
ALL = "<think>why</think>So: " + CALL + CALL


def numbered() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"call_{next(numbers)}"


class Bench:
    def __init__(self, stop: Sequence[str] = (), stream: bool = True) -> None:
        self.pipe = Pipe()
        self.tally = Tally()
        formatter = ChatFormatter(IDENTITY, None, False)
        written = EventStreamWriter(self.pipe, b"HEAD\r\n\r\n", True, formatter, self.tally)  # type: ignore[arg-type]  # a fake
        self.whole = JsonWriter(ChatFormatter(IDENTITY, None, False))
        new_id = numbered()

        def parser() -> AnswerParser:
            return AnswerParser(ReasoningParser(False), HermesParser(), new_id)

        line = ParsedAnswer(written if stream else self.whole, parser)
        self.answer = Answer(line, 3, self.tally, lambda: None)
        self.one = self.answer.join(Generation(self.answer, Letters, stop))

    def give(self, text: str, finish: int = 0) -> None:
        self.one.tokens([ord(character) for character in text], finish, 0)

    @property
    def deltas(self) -> list[dict]:
        lines = [line for line in self.pipe.data.split(b"\n") if line.startswith(b"data: {")]
        events = [json.loads(line.removeprefix(b"data: ")) for line in lines]
        return [choice["delta"] for event in events for choice in event.get("choices", ())]

    def joined(self, key: str) -> str:
        return "".join(delta.get(key) or "" for delta in self.deltas)

    @property
    def arguments(self) -> list[str]:
        joined: dict[int, str] = {}
        for call in (call for delta in self.deltas for call in delta.get("tool_calls", ())):
            joined[call["index"]] = joined.get(call["index"], "") + call["function"]["arguments"]
        return list(joined.values())


@pytest.mark.parametrize("read", [True, False])
async def test_a_slow_client_gets_every_part_in_order(read: bool) -> None:
    bench = Bench()
    for character in ALL:
        bench.give(character)
        bench.pipe.unread = 0 if read else BUFFER_BYTES + 1
    bench.give("", STOP)
    assert (bench.joined("reasoning"), bench.joined("content")) == ("why", "So: ")
    assert bench.arguments == ['{"a": 1}'] * 2
    order = [next(iter(delta)) for delta in bench.deltas if delta]
    assert [key for key, _ in itertools.groupby(order)] == ["role", "reasoning_content", "content", "tool_calls"]
    assert bench.pipe.data.endswith(b"data: [DONE]\n\n\r\n" + LAST_CHUNK)
    if not read:
        assert len(bench.deltas) == 1 + 1 + 1 + 4 + 1, "what waited was merged"
        assert bench.tally.merged_writes > 10


async def test_a_client_that_never_reads_is_cut_off_at_a_bound() -> None:
    bench = Bench()
    bench.give("a")
    bench.pipe.unread = BUFFER_BYTES + 1
    bench.give("b" * MERGED_CHARACTERS)
    assert not bench.pipe.aborted
    bench.give("b")
    assert bench.pipe.aborted


async def test_an_answer_of_which_all_is_held_back_may_restart() -> None:
    held = Bench()
    held.give("<think>")
    assert held.one.restart() and held.pipe.data == b""
    held.give("<think>a</think>b", STOP)
    assert (held.joined("reasoning"), held.joined("content")) == ("a", "b")
    out = Bench()
    out.give("<think>a")
    assert not out.one.restart()
    whole = Bench(stream=False)
    whole.give(ALL)
    assert whole.one.restart()
    whole.give(CALL, STOP)
    (choice,) = json.loads(whole.whole.body())["choices"]
    assert choice["message"]["content"] is None and len(choice["message"]["tool_calls"]) == 1
    assert "reasoning" not in choice["message"]


@pytest.mark.parametrize(("finish", "reason"), [(STOP, "tool_calls"), (LENGTH, "length")])
async def test_the_reason_is_the_call_only_where_the_model_stopped(finish: int, reason: str) -> None:
    bench = Bench(stream=False)
    bench.give(ALL, finish)
    assert json.loads(bench.whole.body())["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize("text", ["<thi", "a<tool_c", "<think>a</th", "a<tool_call>{"])
@pytest.mark.parametrize("end", ["stop", "length", "stop string", "failure"])
async def test_held_text_is_released_at_every_kind_of_end(text: str, end: str) -> None:
    bench = Bench(stop=["END"])
    bench.give("<think>x</think>")
    bench.give("-")  # something is out
    text = text.removeprefix("<think>")
    for character in text:
        bench.give(character)
    if end == "failure":
        bench.give("EN")
        bench.one.failed(BROKEN)
    else:
        bench.give("END" if end == "stop string" else "EN", {"stop": STOP, "length": LENGTH}.get(end, 0))
    assert bench.joined("content") == "-" + text + ("" if end == "stop string" else "EN")
    assert (b"[DONE]" in bench.pipe.data) == (end != "failure")


SNIPPETS = [
    CALL,
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    '{"name": "g", "arguments": ',
    "{}",
    "}",
    "\n",
    "a b",
]
SNIPPETS += ["<", "<t", "é", '"']


@given(st.lists(st.sampled_from(SNIPPETS), max_size=12), st.integers(0, 3), st.sampled_from([STOP, LENGTH]))
async def test_the_stream_and_the_whole_tell_the_same(parts: list[str], size: int, finish: int) -> None:
    one, many = Bench(stream=False), Bench()
    text = "".join(parts)
    one.give(text, finish)
    for start in range(0, len(text), size + 1):
        many.give(text[start : start + size + 1])
    many.give("", finish)
    (choice,) = json.loads(one.whole.body())["choices"]
    message = choice["message"]
    assert many.joined("content") == (message["content"] or "")
    assert many.joined("reasoning") == message.get("reasoning", "")
    whole = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    assert [arguments for arguments in many.arguments if valid(arguments)] == whole
    assert f'"finish_reason":"{choice["finish_reason"]}"' in many.pipe.data.decode()


def valid(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
