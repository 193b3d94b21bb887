"""An answer as protobuf messages, and the part of it that waits to be sent.

    Dispatcher --> IdRecorder (ids) --> Generation (text) --> PendingOutputs --take--> one message

Tokens are only added here, in the call that brought them. Of a stream one coroutine sends, and takes what waits at
once: a client that reads slower than tokens come gets fewer, larger messages.
"""

import asyncio
from array import array
from collections.abc import Callable, Mapping, Sequence

from octavo.proto.v1 import octavo_pb2
from octavo.router.answers.delta import Delta, Usage
from octavo.router.answers.formatters import protobuf
from octavo.router.answers.generation import Generation
from octavo.router.answers.tally import Tally
from octavo.router.answers.writers.bounds import MERGED_CHARACTERS
from octavo.router.jobs.generation import RequestError

CHUNK_CHARACTERS = 256 << 10  # of one message of a stream: well under the 4 MiB that clients accept by default


class PendingOutputs:
    """The AnswerWriter of one call that is answered at once, at its end."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._reasons: dict[int, str] = {}
        self._ids: dict[int, array[int]] = {}

    def record(self, index: int, ids: Sequence[int]) -> None:
        """Ids that count. They go out with the text, so that an answer of which no text was sent can restart."""
        held = self._ids.get(index)
        if held is None:
            self._ids[index] = array("I", ids)
        else:
            held.extend(ids)

    def take(self) -> list[octavo_pb2.Output]:
        """All that waits, by index."""
        return [self._output(index, self._texts.pop(index)) for index in sorted(self._texts)]

    def _output(self, index: int, text: str) -> octavo_pb2.Output:
        reason = self._reasons.pop(index) if index in self._reasons and index not in self._texts else None
        return protobuf.output(index, text, self._ids.pop(index, ()), reason)

    # The AnswerWriter.

    def text(self, index: int, text: str) -> None:
        self._texts[index] = self._texts.get(index, "") + text

    def delta(self, index: int, delta: Delta) -> None:
        """Answers over gRPC show neither parts nor details."""
        self.text(index, delta.text)

    def finish(self, index: int, delta: Delta, reason: str) -> None:
        self._texts[index] = self._texts.get(index, "") + delta.text
        self._reasons[index] = reason

    def end(self, usage: Usage) -> None:
        """The caller asks the Answer."""

    def failed(self, error: RequestError, held: Mapping[int, Delta]) -> None:
        """The caller hears it from the Answer."""

    def forget(self, index: int) -> bool:
        self._texts.pop(index, None)
        self._ids.pop(index, None)
        return True


class PendingStream(PendingOutputs):
    """The AnswerWriter of one call that is answered in pieces. One coroutine waits for `news` and takes them.

    on_overflow: called when the client has left more than MERGED_CHARACTERS of an output waiting.
    """

    def __init__(self, tally: Tally, on_end: Callable[[], None], on_overflow: Callable[[], None]) -> None:
        super().__init__()
        self.usage: Usage | None = None
        self.error: RequestError | None = None
        self._tally = tally
        self._on_end = on_end
        self._on_overflow = on_overflow
        self._sent: set[int] = set()
        self._news = asyncio.Event()

    async def news(self) -> None:
        """Until something waits, or nothing more comes."""
        await self._news.wait()
        self._news.clear()

    @property
    def is_empty(self) -> bool:
        return not self._texts

    def take(self) -> list[octavo_pb2.Output]:
        """What waits, by index, as far as it fits into one message; it is then out."""
        outputs: list[octavo_pb2.Output] = []
        room = CHUNK_CHARACTERS
        for index in sorted(self._texts) if len(self._texts) > 1 else tuple(self._texts):
            text = self._texts.pop(index)
            if len(text) > room:
                self._texts[index] = text[room:]
                text = text[:room]
            self._sent.add(index)
            outputs.append(self._output(index, text))
            room -= len(text)
            if room <= 0:
                break
        if self._texts:
            self._news.set()
        return outputs

    def text(self, index: int, text: str) -> None:
        held = self._texts.get(index)
        if held is not None:
            self._tally.merged_writes += 1
            text = held + text
            if len(text) > MERGED_CHARACTERS:
                self._on_overflow()
        self._texts[index] = text
        self._news.set()

    def finish(self, index: int, delta: Delta, reason: str) -> None:
        super().finish(index, delta, reason)
        self._news.set()

    def end(self, usage: Usage) -> None:
        self.usage = usage
        self._last()

    def failed(self, error: RequestError, held: Mapping[int, Delta]) -> None:
        for index, delta in held.items():
            if index in self._sent:
                self.text(index, delta.text)
        self.error = error
        self._last()

    def forget(self, index: int) -> bool:
        return index not in self._sent and super().forget(index)

    def _last(self) -> None:
        self._news.set()
        self._on_end()


class IdRecorder:
    """The Sink of one job: a Generation's, with the ids kept that it counted (none after a stop string)."""

    __slots__ = ("_generation", "_pending")

    def __init__(self, pending: PendingOutputs, generation: Generation) -> None:
        self._pending = pending
        self._generation = generation

    def tokens(self, ids: Sequence[int], finish: int, cached: int) -> None:
        generation = self._generation
        before = generation.count
        generation.tokens(ids, finish, cached)
        if counted := generation.count - before:
            self._pending.record(generation.index, ids[:counted])

    def scores(self, tokens: bytes, prompt: bytes) -> None:
        self._generation.scores(tokens, prompt)

    def failed(self, error: RequestError) -> None:
        self._generation.failed(error)

    def restart(self) -> bool:
        return self._generation.restart()
