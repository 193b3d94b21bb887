"""From ids to events: merged for a slow client, restarted only while nothing is out, ended once."""

import json
from collections.abc import Sequence

import pytest
from support.router.letters import Letters, Pipe

from octavo.router.answers.answer import Answer
from octavo.router.answers.formatters.completions import CompletionFormatter
from octavo.router.answers.formatters.formatter import Identity
from octavo.router.answers.generation import Generation
from octavo.router.answers.tally import Tally
from octavo.router.answers.writers.bounds import BUFFER_BYTES, MERGED_CHARACTERS
from octavo.router.answers.writers.event_stream_writer import LAST_CHUNK, EventStreamWriter
from octavo.router.answers.writers.json_writer import JsonWriter
from octavo.router.jobs.generation import FAILED, LENGTH, STOP, RequestError

IDENTITY = Identity("completion", "cmpl-1", 1, "m")
BROKEN = RequestError(502, "server_error", "stream_cut", "lost")


class Cancelled:
    def __init__(self) -> None:
        self.count = 0

    def cancel(self) -> None:
        self.count += 1


class Bench:
    """One answer of `prompts` generations over a pipe."""

    def __init__(self, stop: Sequence[str] = (), prompts: int = 1, stream: bool = True) -> None:
        self.pipe = Pipe()
        self.tally = Tally()
        formatter = CompletionFormatter(IDENTITY, None, True)
        self.stream = EventStreamWriter(self.pipe, b"HEAD\r\n\r\n", True, formatter, self.tally)  # type: ignore[arg-type]  # a fake
        self.whole = JsonWriter(CompletionFormatter(IDENTITY, None, False))
        self.firsts = 0
        self.answer = Answer(self.stream if stream else self.whole, 3, self.tally, self._first)
        self.generations = [self.answer.join(Generation(self.answer, Letters, stop)) for _ in range(prompts)]
        self.handles = [Cancelled() for _ in range(prompts)]
        self.answer.handles += self.handles

    def _first(self) -> None:
        self.firsts += 1

    @property
    def one(self) -> Generation:
        return self.generations[0]

    def give(self, text: str, finish: int = 0, cached: int = 0, index: int = 0) -> None:
        self.generations[index].tokens([ord(character) for character in text], finish, cached)

    @property
    def events(self) -> list[dict]:
        lines = [line for line in self.pipe.data.split(b"\n") if line.startswith(b"data: {")]
        return [json.loads(line.removeprefix(b"data: ")) for line in lines]

    @property
    def text(self) -> str:
        return "".join(choice["text"] for event in self.events for choice in event.get("choices", ()))


async def test_nothing_is_written_before_the_first_token_and_the_head_goes_with_it() -> None:
    bench = Bench()
    assert bench.pipe.data == b""
    bench.give("a", cached=2)
    assert bench.pipe.data.startswith(b"HEAD\r\n\r\n") and bench.text == "a" and bench.firsts == 1
    bench.give("b", LENGTH)
    assert bench.text == "ab" and bench.pipe.data.endswith(b"data: [DONE]\n\n\r\n" + LAST_CHUNK)
    assert bench.events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
    assert bench.answer.done.result() is None


async def test_what_a_slow_client_has_not_taken_is_merged_and_nothing_is_lost() -> None:
    bench = Bench()
    bench.give("a")
    bench.pipe.unread = BUFFER_BYTES + 1
    for _ in range(100):
        bench.give("b")
    assert bench.text == "a"
    bench.pipe.unread = 0
    bench.give("c")
    assert bench.text == "a" + "b" * 100 + "c" and len(bench.events) == 2
    bench.pipe.unread = BUFFER_BYTES + 1
    bench.give("d")
    bench.give("e", STOP)
    assert bench.text.endswith("cde")


async def test_a_client_that_never_reads_is_cut_off_at_a_bound() -> None:
    bench = Bench()
    bench.give("a")
    bench.pipe.unread = BUFFER_BYTES + 1
    bench.give("b" * MERGED_CHARACTERS)
    assert not bench.pipe.aborted
    bench.give("b")
    assert bench.pipe.aborted


async def test_a_stop_string_ends_the_answer_and_tells_the_engine() -> None:
    bench = Bench(stop=["FG"])
    for piece in ("ABC", "DEF", "GHI", "J"):
        bench.give(piece)
    assert bench.text == "ABCDE"
    assert bench.events[-2]["choices"][0]["finish_reason"] == "stop"
    assert bench.events[-1]["usage"]["completion_tokens"] == 7, "counted up to the token that completed it"
    assert bench.handles[0].count == 1


@pytest.mark.parametrize("pieces", [["ABCDEFGHI"], list("ABCDEFGHI"), ["ABCDEF", "GHI"]])
async def test_usage_at_a_stop_string_does_not_depend_on_how_tokens_came(pieces: list[str]) -> None:
    bench = Bench(stop=["FG"], stream=False)
    for piece in pieces:
        bench.give(piece)
    assert json.loads(bench.whole.body())["usage"]["completion_tokens"] == 7


async def test_a_failure_after_the_first_token_is_one_error_event_without_a_finish() -> None:
    bench = Bench(prompts=2)
    bench.give("a")
    bench.generations[1].failed(BROKEN)
    bench.give("b", STOP)
    assert [event for event in bench.events if "error" in event] == [bench.events[-1]]
    assert bench.pipe.data.endswith(LAST_CHUNK) and b"[DONE]" not in bench.pipe.data
    assert b'"finish_reason":"' not in bench.pipe.data
    assert bench.answer.done.result() is BROKEN and bench.handles[0].count == 1


async def test_text_held_for_a_stop_string_is_released_when_the_answer_fails() -> None:
    bench = Bench(stop=["abcd"], prompts=2)
    bench.give("xab")
    bench.give("yabc", index=1)
    bench.generations[0].failed(BROKEN)
    by_index = {0: "", 1: ""}
    for choice in (choice for event in bench.events for choice in event.get("choices", ())):
        by_index[choice["index"]] += choice["text"]
    assert by_index == {0: "xab", 1: "yabc"} and "error" in bench.events[-1]
    early = Bench(stop=["abcd"])
    early.give("abc")
    early.one.failed(BROKEN)
    assert early.pipe.data == b"", "nothing was out: the error has a status of its own"


async def test_a_failure_before_the_first_token_writes_nothing() -> None:
    bench = Bench()
    bench.one.failed(BROKEN)
    assert bench.pipe.data == b"" and bench.answer.done.result() is BROKEN


async def test_finish_failed_is_an_error_and_never_a_stop() -> None:
    bench = Bench()
    bench.give("a")
    bench.give("", FAILED)
    assert "error" in bench.events[-1] and bench.answer.done.result() is not None


async def test_an_answer_of_which_nothing_was_written_may_restart() -> None:
    held = Bench(stop=["abcd"])
    held.give("abc")
    assert held.one.restart()
    held.give("xy", STOP)
    assert held.text == "xy" and held.events[-1]["usage"]["completion_tokens"] == 2
    whole = Bench(stream=False)
    whole.give("half")
    assert whole.one.restart()
    whole.give("all", STOP)
    assert json.loads(whole.whole.body())["choices"][0]["text"] == "all"


async def test_an_answer_of_which_something_was_written_may_not_restart() -> None:
    bench = Bench()
    bench.give("a")
    assert not bench.one.restart()


async def test_several_prompts_are_answered_in_their_own_choices() -> None:
    bench = Bench(prompts=2, stream=False)
    bench.give("b", LENGTH, index=1)
    assert not bench.answer.done.done()
    bench.give("a", STOP)
    choices = json.loads(bench.whole.body())["choices"]
    assert [(choice["index"], choice["text"], choice["finish_reason"]) for choice in choices] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]


async def test_a_client_that_has_left_is_written_nothing_and_its_connection_is_ended() -> None:
    for prompts in (1, 2):
        bench = Bench(prompts=prompts)
        bench.give("a")
        bench.pipe.closed = True
        bench.give("b")
        bench.give("c", STOP)
        if prompts == 2:
            bench.generations[1].failed(BROKEN)
        assert bench.text == "a" and bench.pipe.aborted and bench.stream.has_left


@pytest.mark.parametrize("broken", ["finish", "end", "failed"])
async def test_an_answer_that_cannot_be_passed_on_is_over_all_the_same(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    bench = Bench()
    bench.give("a")
    with monkeypatch.context() as patched:
        patched.setattr(bench.stream, broken, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bench.one.failed(BROKEN) if broken == "failed" else bench.give("b", STOP)
    bench.one.failed(BROKEN)
    assert bench.answer.done.result() is BROKEN and bench.handles[0].count == 1
