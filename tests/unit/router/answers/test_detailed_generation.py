"""Answers with details: the details of a token are written with its text, streamed as whole, and end where it ends."""

import json
import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.router.letters import Pipe

from octavo.router.answers.answer import Answer
from octavo.router.answers.delta import Delta
from octavo.router.answers.detailed_generation import DetailedGeneration, Details
from octavo.router.answers.formatters.chat import ChatFormatter
from octavo.router.answers.formatters.completions import CompletionFormatter
from octavo.router.answers.formatters.details import DetailOptions
from octavo.router.answers.formatters.formatter import Identity
from octavo.router.answers.tally import Tally
from octavo.router.answers.writers.bounds import BUFFER_BYTES
from octavo.router.answers.writers.event_stream_writer import EventStreamWriter
from octavo.router.answers.writers.json_writer import JsonWriter
from octavo.router.jobs.generation import LENGTH, NOT_FINISHED, STOP, RequestError
from octavo.router.openai_api.openai import Kind
from octavo.router.text.detokenise import metaspace_bytes, piece_bytes
from octavo.router.text.logprobs import Scored, TokenText, text_of, unpack

PIECES = [b"ab", b"c", b" d", b"\xc3", b"\xa9", b"", b"END", b"E", b"\xf0\x9f", b"\x8c", b"\xb6"]


class Bytes:
    """A Detokeniser of PIECES."""

    def __init__(self) -> None:
        import codecs

        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Sequence[int]) -> str:
        return "".join(self._decoder.decode(PIECES[token]) for token in ids)

    def flush(self) -> str:
        return self._decoder.decode(b"", True)


def name(token: int) -> TokenText:
    return text_of(PIECES[token])


def packed(token: int, logprob: float, top: Sequence[tuple[int, float]] = ()) -> bytes:
    ids, values = [token, *(i for i, _ in top)], [logprob, *(value for _, value in top)]
    return struct.pack(f"<I{len(ids)}I{len(ids)}f", 1 + token, *ids, *values)


class Cancelled:
    def __init__(self) -> None:
        self.count = 0

    def cancel(self) -> None:
        self.count += 1


class Bench:
    """One generation with details, streamed or collected."""

    def __init__(
        self,
        details: Details,
        stop: Sequence[str] = (),
        stream: bool = False,
        kind: Kind = "completion",
        usage: bool = False,
        **options: Any,
    ) -> None:
        self.pipe, self.handle = Pipe(), Cancelled()
        identity = Identity(kind, "id", 1, "m")
        self.options = DetailOptions(name, top=details.top, token_ids=details.prompt_ids is not None, **options)
        make = ChatFormatter if kind == "chat" else CompletionFormatter
        formatter = make(identity, self.options, usage)
        self.whole = JsonWriter(formatter)
        self.stream = EventStreamWriter(self.pipe, b"", False, formatter, Tally())  # type: ignore[arg-type]  # a fake
        writer = self.stream if stream else self.whole
        self.answer = Answer(writer, 3, Tally(), lambda: None)
        self.one = DetailedGeneration(self.answer, Bytes, stop, details)
        self.answer.join(self.one)
        self.answer.handles.append(self.handle)

    def give(self, *ids: int, finish: int = NOT_FINISHED) -> None:
        """Each scored by its position: the first -0.0, then -1.0, ..."""
        top = self.options.top
        if top is not None and ids:
            at = self.one.count
            likeliest = [(index, -float(index)) for index in range(top)]
            self.one.scores(b"".join(packed(token, -float(at + i), likeliest) for i, token in enumerate(ids)), b"")
        self.one.tokens(ids, finish, 0)

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.whole.body())


def details(**fields: Any) -> Details:
    return Details(reader=Bytes, **fields)


async def test_a_chat_has_an_entry_a_token_with_the_right_bytes() -> None:
    bench = Bench(details(top=2), kind="chat")
    bench.give(0, 3, 4, finish=LENGTH)
    choice = bench.body["choices"][0]
    assert choice["message"]["content"] == "abé"
    content = choice["logprobs"]["content"]
    assert [one["token"] for one in content] == ["ab", "bytes:\\xc3", "bytes:\\xa9"]
    assert [one["bytes"] for one in content] == [[97, 98], [0xC3], [0xA9]]
    assert [one["logprob"] for one in content] == [0.0, -1.0, -2.0]
    assert content[1]["top_logprobs"] == [
        {"token": "ab", "logprob": 0.0, "bytes": [97, 98]}, {"token": "c", "logprob": -1.0, "bytes": [99]}
    ]  # fmt: skip


async def test_without_top_logprobs_each_token_has_an_empty_list() -> None:
    bench = Bench(details(top=0), kind="chat")
    bench.give(0, 1, finish=STOP)
    assert [one["top_logprobs"] for one in bench.body["choices"][0]["logprobs"]["content"]] == [[], []]


async def test_a_completion_has_four_lists_of_one_length() -> None:
    bench = Bench(details(top=1))
    bench.give(1, 0, 2, finish=LENGTH)
    logprobs = bench.body["choices"][0]["logprobs"]
    assert logprobs == {
        "tokens": ["c", "ab", " d"],
        "token_logprobs": [0.0, -1.0, -2.0],
        "top_logprobs": [{"ab": 0.0, "c": 0.0}, {"ab": 0.0}, {"ab": 0.0, " d": -2.0}],
        "text_offset": [0, 1, 3],
    }


async def test_an_echo_begins_with_the_prompt_and_its_first_token_has_no_value() -> None:
    bench = Bench(details(top=0, echo="cab", first_id=1, prompt_top=0))
    bench.one.scores(b"", packed(0, -0.5))
    bench.give(2, finish=LENGTH)
    choice = bench.body["choices"][0]
    assert choice["text"] == "cab d"
    assert choice["logprobs"]["tokens"] == ["c", "ab", " d"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5, 0.0]
    assert choice["logprobs"]["text_offset"] == [0, 1, 3]
    assert bench.body["usage"]["completion_tokens"] == 1


async def test_an_echo_alone_drops_the_token_that_the_engine_had_to_make() -> None:
    bench = Bench(details(top=0, echo="c", first_id=1, prompt_top=0, drop=True))
    bench.give(2, finish=STOP)
    choice = bench.body["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]["tokens"]) == ("c", "length", ["c"])
    assert bench.body["usage"]["completion_tokens"] == 0


async def test_the_prompts_table_has_every_token_by_id() -> None:
    bench = Bench(details(prompt_top=2, prompt_table=True), prompt_top=1, asked_top=2)
    bench.one.scores(b"", packed(4, -0.5, [(1, -0.25), (4, -0.5)]))
    bench.one.tokens((), 0, 0)
    bench.one.scores(b"", packed(1, -0.25, [(1, -0.25), (4, -0.5)]))
    bench.give(2, finish=LENGTH)
    second = {
        "4": {"logprob": -0.5, "rank": 5, "decoded_token": "bytes:\\xa9"},
        "1": {"logprob": -0.25, "rank": 1, "decoded_token": "c"},
    }
    third = {"1": {"logprob": -0.25, "rank": 2, "decoded_token": "c"}}
    assert bench.body["choices"][0]["prompt_logprobs"] == [None, second, third]


async def test_values_end_with_the_text_at_a_stop_string() -> None:
    bench = Bench(details(top=0), stop=["cE"])
    bench.give(0, 1)
    bench.give(6, 2)
    choice = bench.body["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("ab", "stop")
    assert choice["logprobs"]["tokens"] == ["ab"]
    assert bench.handle.count == 1 and bench.body["usage"]["completion_tokens"] == 3


async def test_a_token_of_which_the_beginning_is_shown_has_details() -> None:
    bench = Bench(details(top=0), stop=["b"])
    bench.give(1, 0, 2)
    choice = bench.body["choices"][0]
    assert (choice["text"], choice["logprobs"]["tokens"]) == ("ca", ["c", "ab"])


async def test_half_a_character_of_a_stop_string_has_no_details() -> None:
    for stream in (False, True):
        bench = Bench(details(top=0), stop=["é"], stream=stream)
        bench.give(1)
        bench.give(3)
        bench.give(4)
        choices = [event["choices"][0] for event in bench.pipe.events] if stream else bench.body["choices"]
        tokens = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
        assert tokens == ["c"]


async def test_a_stop_string_may_be_shown() -> None:
    bench = Bench(details(include_stop=True), stop=["dE"])
    bench.give(0, 2, 6, 1)
    assert bench.body["choices"][0]["text"] == "ab dE"
    assert bench.body["choices"][0]["finish_reason"] == "stop"


async def test_stop_strings_count_only_after_min_tokens() -> None:
    bench = Bench(details(min_tokens=2), stop=["c"])
    bench.give(1, 1, 0, 1, 0)
    assert bench.body["choices"][0]["text"] == "ccab"
    assert bench.body["usage"]["completion_tokens"] == 4


async def test_all_ids_are_reported_also_hidden_ones() -> None:
    bench = Bench(details(prompt_ids=(7, 8)), stop=["END"])
    bench.give(0, 5, 6)
    choice = bench.body["choices"][0]
    assert (choice["text"], choice["token_ids"], choice["prompt_token_ids"]) == ("ab", [0, 5, 6], [7, 8])
    chat = Bench(details(prompt_ids=(7,)), kind="chat")
    chat.give(0, finish=STOP)
    assert chat.body["prompt_token_ids"] == [7] and chat.body["choices"][0]["token_ids"] == [0]


async def test_usage_in_every_event_counts_up() -> None:
    bench = Bench(details(continuous_usage=True), stream=True, usage=True)
    bench.give(0)
    bench.give(1, 2, finish=LENGTH)
    counts = [event["usage"]["completion_tokens"] for event in bench.pipe.events]
    assert counts == [1, 3, 3] and bench.pipe.events[0]["usage"]["prompt_tokens"] == 3
    assert bench.pipe.events[-1]["choices"] == []


async def test_what_a_slow_client_has_not_read_is_merged_and_bounded() -> None:
    bench = Bench(details(top=3), stream=True)
    bench.give(0)
    before = len(bench.pipe.events)
    bench.pipe.unread = BUFFER_BYTES + 1
    for _ in range(100):
        bench.give(1)
    assert len(bench.pipe.events) == before and not bench.pipe.aborted
    bench.pipe.unread = 0
    bench.give(2, finish=LENGTH)
    last = bench.pipe.events[-1]["choices"][0]
    assert last["text"] == "c" * 100 + " d" and len(last["logprobs"]["tokens"]) == 101
    bench = Bench(details(top=10), stream=True)
    bench.pipe.unread = BUFFER_BYTES + 1
    for _ in range(70):
        bench.give(*[1] * 100)
    assert bench.pipe.aborted


async def test_a_failure_shows_what_was_held_and_then_one_error() -> None:
    bench = Bench(details(top=0), stream=True)
    bench.give(0)
    bench.pipe.unread = BUFFER_BYTES + 1
    bench.give(1)
    bench.one.failed(RequestError(502, "server_error", "stream_cut", "lost"))
    assert bench.pipe.events[-2]["choices"][0]["logprobs"]["tokens"] == ["c"]
    assert "error" in bench.pipe.events[-1]


async def test_what_a_stop_string_held_back_is_shown_with_its_tokens_when_the_request_fails() -> None:
    lost = RequestError(502, "server_error", "stream_cut", "lost")
    bench = Bench(details(top=0), stop=("ENDED",), stream=True)
    bench.give(0, 6, 7, 3)  # ab, END, E, and half a character
    bench.one.failed(lost)
    shown = [event["choices"][0] for event in bench.pipe.events[:-1]]
    assert "".join(one["text"] for one in shown) == "abENDE"
    assert [token for one in shown if one["logprobs"] for token in one["logprobs"]["tokens"]] == ["ab", "END", "E"]
    assert "error" in bench.pipe.events[-1]
    early = Bench(details(top=0), stop=("ENDED",), stream=True)
    early.give(6)
    early.one.failed(lost)
    assert not early.pipe.data, "nothing is out: the error has a status"


async def test_a_generation_restarts_while_nothing_was_written() -> None:
    bench = Bench(details(top=0, prompt_ids=(1,)))
    bench.give(0, 1)
    assert bench.one.restart()
    bench.give(2, finish=LENGTH)
    choice = bench.body["choices"][0]
    assert (choice["text"], choice["token_ids"], choice["logprobs"]["tokens"]) == (" d", [2], [" d"])


@given(
    ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=20),
    stop=st.sampled_from(((), ("END",), ("cE", "b"), ("é",), ("\ufffd",))),
    include=st.booleans(),
    kind=st.sampled_from(("completion", "chat")),
    seed=st.integers(0, 9),
)
async def test_a_stream_says_the_same_as_a_whole_answer(
    ids: list[int], stop: tuple[str, ...], include: bool, kind: Kind, seed: int
) -> None:
    shown = details(top=1, include_stop=include, prompt_ids=(1,))
    whole, streamed = Bench(shown, stop, kind=kind), Bench(shown, stop, stream=True, kind=kind)
    whole.give(*ids, finish=LENGTH)
    dice = random.Random(seed)
    at = 0
    while at < len(ids) and not streamed.one.over:
        more = dice.randint(1, 3)
        streamed.give(*ids[at : at + more])
        at += more
    if not streamed.one.over:
        streamed.give(finish=LENGTH)
    choice = whole.body["choices"][0]
    parts = [event["choices"][0] for event in streamed.pipe.events]
    assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1]["finish_reason"] == choice["finish_reason"]
    assert [token for part in parts for token in part.get("token_ids", ())] == choice["token_ids"]
    if kind == "chat":
        assert "".join(part["delta"].get("content", "") for part in parts) == choice["message"]["content"]
        listed = [one for part in parts if part["logprobs"] for one in part["logprobs"]["content"]]
        assert listed == choice["logprobs"]["content"]
    else:
        assert "".join(part["text"] for part in parts) == choice["text"]
        for column in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            listed = [one for part in parts if part["logprobs"] for one in part["logprobs"][column]]
            assert listed == choice["logprobs"][column]


def test_packed_scores_come_apart_and_other_widths_are_refused() -> None:
    both = packed(3, -1.5, [(1, -0.5)]) + packed(4, -2.5, [(2, -0.25)])
    assert unpack(both, 1) == [Scored(3, -1.5, 4, ((1, -0.5),)), Scored(4, -2.5, 5, ((2, -0.25),))]
    with pytest.raises(ValueError):
        unpack(both, 2)


def test_tokens_of_both_families_have_their_bytes() -> None:
    assert piece_bytes("Ġthe") == b" the"
    assert metaspace_bytes("\u2581the") == b" the"
    assert metaspace_bytes("<0xE2>") == b"\xe2"
    assert text_of(b"\xe2\x96") == TokenText("bytes:\\xe2\\x96", b"\xe2\x96")


async def test_details_are_written_to_no_client_that_has_left() -> None:
    bench = Bench(Details(reader=Bytes, top=0), stream=True)
    bench.pipe.closed = True
    bench.stream.delta(0, Delta("a"))
    bench.stream.finish(0, Delta("b"), "stop")
    bench.stream.failed(RequestError(502, "server_error", "stream_cut", "lost"), {})
    assert bench.pipe.data == b"" and bench.pipe.aborted and bench.stream.has_left
