"""From ids to messages: merged for a slow client, ids only with their text, restarted only while nothing is out."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from octavo.proto.v1 import octavo_pb2
from octavo.router.answers.answer import Answer
from octavo.router.answers.generation import Generation
from octavo.router.answers.tally import Tally
from octavo.router.answers.writers.bounds import MERGED_CHARACTERS
from octavo.router.answers.writers.grpc_writer import CHUNK_CHARACTERS, IdRecorder, PendingOutputs, PendingStream
from octavo.router.jobs.generation import LENGTH, STOP, RequestError

BROKEN = RequestError(502, "server_error", "stream_cut", "lost")


class Letters:
    """A Detokeniser whose ids are code points, and which holds back the letter h."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, ids: Sequence[int]) -> str:
        text = self._held + "".join(map(chr, ids))
        self._held = text[len(text.rstrip("h")) :]
        return text.rstrip("h")

    def flush(self) -> str:
        return self._held


class Bench:
    """One answer of `prompts` generations, in pieces or whole."""

    def __init__(self, stop: Sequence[str] = (), prompts: int = 1, stream: bool = True) -> None:
        self.tally = Tally()
        self.ends = self.overflows = 0
        self.streamed = PendingStream(self.tally, self._end, self._overflow)
        self.pending = self.streamed if stream else PendingOutputs()
        self.answer = Answer(self.pending, 3, self.tally, lambda: None)
        wrap = partial(IdRecorder, self.pending)
        self.sinks = [wrap(self.answer.join(Generation(self.answer, Letters, stop))) for _ in range(prompts)]

    def _end(self) -> None:
        self.ends += 1

    def _overflow(self) -> None:
        self.overflows += 1

    def give(self, text: str, finish: int = 0, index: int = 0) -> None:
        self.sinks[index].tokens([ord(character) for character in text], finish, 0)

    def take(self) -> list[tuple[int, str, str, int]]:
        """index, text, ids as text, finish reason."""
        return [
            (output.index, output.text, "".join(map(chr, output.token_ids)), output.finish_reason)
            for output in self.pending.take()
        ]


ON, STOPPED, CAPPED = (
    octavo_pb2.FINISH_REASON_UNSPECIFIED,
    octavo_pb2.FINISH_REASON_STOP,
    octavo_pb2.FINISH_REASON_LENGTH,
)


async def test_what_waits_goes_out_as_one_piece_and_nothing_is_lost() -> None:
    bench = Bench()
    bench.give("a")
    await asyncio.wait_for(bench.streamed.news(), 1)
    assert bench.take() == [(0, "a", "a", ON)]
    for letter in "bcd":
        bench.give(letter)
    bench.give("e", LENGTH)
    assert bench.take() == [(0, "bcde", "bcde", CAPPED)]
    assert bench.streamed.is_empty and bench.streamed.usage is not None and bench.ends == 1
    assert bench.streamed.usage.completion == 5


async def test_ids_wait_for_the_text_that_they_make() -> None:
    bench = Bench()
    bench.give("h")
    bench.give("h")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bench.streamed.news(), 0.01)
    bench.give("i")
    assert bench.take() == [(0, "hhi", "hhi", ON)]


async def test_ids_end_with_the_one_that_completed_a_stop_string() -> None:
    for stream in (True, False):
        bench = Bench(stop=["FG"], stream=stream)
        bench.give("ABCDEFGHI", STOP)
        assert bench.take() == [(0, "ABCDE", "ABCDEFG", STOPPED)]
        assert bench.answer.usage().completion == 7


async def test_an_answer_of_which_nothing_was_sent_may_restart_and_then_not() -> None:
    bench = Bench()
    bench.give("ab")
    assert bench.sinks[0].restart()
    bench.give("xy")
    assert bench.take() == [(0, "xy", "xy", ON)]
    assert not bench.sinks[0].restart()
    whole = Bench(stream=False)
    whole.give("half")
    assert whole.sinks[0].restart()
    whole.give("all", STOP)
    assert whole.take() == [(0, "all", "all", STOPPED)]


async def test_several_prompts_are_answered_in_outputs_of_their_own() -> None:
    bench = Bench(prompts=3)
    bench.give("c", index=2)
    bench.give("a", LENGTH, index=0)
    assert bench.take() == [(0, "a", "a", CAPPED), (2, "c", "c", ON)]
    bench.give("b", STOP, index=1)
    bench.give("", STOP, index=2)
    assert bench.take() == [(1, "b", "b", STOPPED), (2, "", "", STOPPED)]
    assert bench.streamed.usage is not None


async def test_a_message_stays_under_what_clients_accept_by_default() -> None:
    bench = Bench(prompts=2)
    text = "x" * (2 * CHUNK_CHARACTERS + 5)
    bench.give(text, STOP, index=0)
    bench.give("y", STOP, index=1)
    pieces = []
    while not bench.streamed.is_empty:
        await asyncio.wait_for(bench.streamed.news(), 1)
        pieces.append(bench.take())
        assert sum(len(text) for _, text, _, _ in pieces[-1]) <= CHUNK_CHARACTERS
    outputs = [output for piece in pieces for output in piece]
    assert "".join(output[1] for output in outputs if output[0] == 0) == text
    assert [output[3] for output in outputs if output[0] == 0] == [ON, ON, STOPPED]
    assert outputs[-1] == (1, "y", "y", STOPPED)


async def test_a_client_that_never_reads_is_reported_at_a_bound() -> None:
    bench = Bench()
    bench.give("a" * MERGED_CHARACTERS)
    assert bench.overflows == 0 and bench.tally.merged_writes == 0
    bench.give("a")
    assert bench.overflows == 1 and bench.tally.merged_writes == 1


async def test_a_failure_is_the_end() -> None:
    bench = Bench(prompts=2)
    bench.give("a")
    bench.sinks[1].failed(BROKEN)
    bench.give("b", STOP)
    await asyncio.wait_for(bench.streamed.news(), 1)
    assert bench.take() == [(0, "a", "a", ON)]
    assert bench.streamed.error is BROKEN and bench.streamed.usage is None and bench.ends == 1
