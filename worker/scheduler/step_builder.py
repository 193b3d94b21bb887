"""Prefill in a step, and the step put together from its decoding rows and its chunks."""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.worker.messages.request import Request
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Scored, Step
from octavo.worker.scheduler.decode_batch import Members


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions of one request's known tokens that go into a step; the last known one is sampled from."""

    request: Request
    start: int
    count: int

    @property
    def samples(self) -> bool:
        return self.start + self.count == self.request.known

    @property
    def scored(self) -> tuple[int, int] | None:
        """Offset and count of the positions whose next tokens are of the prompt, and still lack log-probabilities."""
        scoring = self.request.scoring
        if scoring is None:
            return None
        begin = max(self.start + 1, scoring.issued)
        count = min(self.start + self.count + 1, scoring.end) - begin
        return (begin - self.start - 1, count) if count > 0 else None


@dataclass(frozen=True, slots=True)
class StepChanges:
    """What a step changes on the device before its pass, as in Forward."""

    admitted: Sequence[Request]
    blocks: Sequence[Blocks]
    zeroed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decoding:
    """A decode batch's part of a step. starts, counters: one entry a member."""

    members: Members
    starts: tuple[int, ...]
    counters: tuple[int, ...]


def build_step(number: int, changes: StepChanges, decoding: Decoding, chunks: Sequence[Chunk]) -> Step:
    """Rows: the decoding ones, then the chunks in their order. Call it while the requests still hold their slots."""
    members = decoding.members
    first = len(members.rows)
    forward = Forward(
        tuple(map(_admit, changes.admitted)),
        tuple(changes.blocks),
        members.slots + tuple(chunk.request.slot for chunk in chunks),
        decoding.starts + tuple(chunk.start for chunk in chunks),
        members.counts + tuple(chunk.count for chunk in chunks),
        changes.zeroed,
    )
    sample = Sample(
        members.rows + tuple(row for row, chunk in enumerate(chunks, first) if chunk.samples),
        decoding.counters + tuple(_sampled(chunk.request) for chunk in chunks if chunk.samples),
        tuple(Scored(row, *part) for row, chunk in enumerate(chunks, first) if (part := chunk.scored) is not None),
    )
    return Step(number, forward, sample)


def _admit(request: Request) -> Admit:
    return Admit(request.slot, tuple(request.tokens), request.new.sampling, _sampled(request))


def _sampled(request: Request) -> int:
    return request.known - len(request.new.prompt)
