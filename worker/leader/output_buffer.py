"""What waits for one router: rows of generated tokens, refusals, news of credit. Merged until it can be written.

A stream has one write under way; what comes meanwhile is packed into the next message, whatever the number of steps.
"""

import struct
from collections import deque
from collections.abc import Iterable, Sequence

from octavo.proto.v1 import engine_pb2
from octavo.worker.messages.output import Output
from octavo.worker.messages.packing import pack

NO_TOKEN = 0xFFFFFFFF
_ROW = struct.Struct("<I")
_ROW_BYTES = 13


class OutputBuffer:
    """Arrays of the next StepOutput, and what is sent beside it."""

    def __init__(self) -> None:
        self._clear()
        self._rejected: deque[engine_pb2.Rejected] = deque()
        self.draining = False  # still to be sent
        self.credit = False  # still to be sent

    def _clear(self) -> None:
        self._numbers, self._ids, self._finishes, self._cached = bytearray(), bytearray(), bytearray(), bytearray()
        self._scores: list[engine_pb2.Scores] = []
        self._scores_bytes = 0

    @property
    def size_bytes(self) -> int:
        return len(self._finishes) * _ROW_BYTES + self._scores_bytes + 256 * len(self._rejected)

    @property
    def empty(self) -> bool:
        return not (self._finishes or self._rejected or self.draining or self.credit)

    def add_tokens(self, numbers: Iterable[int], ids: Sequence[int]) -> None:
        """A row for each of these requests, which go on."""
        self._numbers += pack(numbers)
        self._ids += pack(ids)
        self._finishes += bytes(len(ids))
        self._cached += bytes(len(ids) * 4)

    def add(self, number: int, output: Output) -> None:
        """One request's part of a step: a row for each id, or one without a token. The finish stands on the last."""
        ids = output.ids or (NO_TOKEN,)
        count = len(ids)
        if (scores := output.scores) is not None:
            row = len(self._finishes)
            self._scores.append(engine_pb2.Scores(row=row, tokens=scores.tokens, prompt=scores.prompt))
            self._scores_bytes += len(scores.tokens) + len(scores.prompt)
        self._numbers += _ROW.pack(number) * count
        self._ids += struct.pack(f"<{count}I", *ids)
        self._finishes += bytes(count - 1) + bytes((output.finish,))
        self._cached += _ROW.pack(output.cached) + bytes(4 * (count - 1))

    def reject(self, rejected: engine_pb2.Rejected) -> None:
        self._rejected.append(rejected)

    def take(self, credit: engine_pb2.Credit) -> engine_pb2.FromEngine | None:
        """The next message; None when there is nothing to say."""
        if self.empty:
            return None
        self.credit = False
        message = engine_pb2.FromEngine(credit=credit)
        if self.draining:
            self.draining = False
            message.draining.SetInParent()
        elif self._finishes:
            message.output.numbers, message.output.ids = bytes(self._numbers), bytes(self._ids)
            message.output.finishes, message.output.cached = bytes(self._finishes), bytes(self._cached)
            if self._scores:
                message.output.scores.extend(self._scores)
            self._clear()
        elif self._rejected:
            message.rejected.CopyFrom(self._rejected.popleft())
        return message
