"""The message scheduler -> rank: one forward pass of a batch, and its results on the way back.

A Step has two halves, so that a rank (or the last stage of a pipeline) can run `forward` while the host still prepares
what `sample` needs (grammar masks); every stage receives the same Step. Request state is on the device, by slot:
a token pool [slots, context], a block table [slots, max_blocks], sampling parameters. A step carries only changes, so a
decode step names rows and sends no ids: the token sampled at the step before lies in the pool already.

Rows are parallel tuples and not objects: a step of 256 rows costs the scheduler a few microseconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from octavo.shared.sampling_params import SamplingParams

EAGER = ""  # no graph: launched kernel by kernel
LOCAL = "local"  # collective path of a group with one rank


@dataclass(frozen=True, slots=True)
class Admit:
    """A request takes `slot`. tokens: all ids known now (prompt, and what was generated before)."""

    slot: int
    tokens: tuple[int, ...]
    sampling: SamplingParams
    generated_before: int  # of `tokens`, how many were sampled: the counter of the next sample


class Blocks(NamedTuple):
    """Write `blocks` (pool indices) into the block table of `slot`, from entry `first`."""

    slot: int
    first: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """Compute positions start .. start+count-1 of `slot`."""

    slot: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Forward:
    """Device changes, applied in order before the pass; then the rows. Rows that decode (count 1) come first.

    slots, starts, counts: one entry a row: compute positions start .. start+count-1 of slot.
    zeroed: blocks of which every rank zeroes its KV before the pass. A request whose logits were not finite has left
    them, and the next owner masks what it has not written: a masked NaN is NaN. Only the last stage sees logits, and
    only the order of steps tells all ranks when no row writes there any more; hence the step says it.
    """

    admits: tuple[Admit, ...] = ()
    blocks: tuple[Blocks, ...] = ()
    slots: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    zeroed: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(map(Row, self.slots, self.starts, self.counts))

    @property
    def tokens(self) -> int:
        return sum(self.counts)


class Scored(NamedTuple):
    """Log-probabilities of known tokens are wanted: of the tokens after so many positions of a row, from start+first
    on."""

    row: int
    first: int
    positions: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Indices of the rows whose last position is sampled; the id is written to the pool at start+count.

    counters: for each of them, how many tokens the request had sampled before (the random counter).
    scored: parts of prompts whose log-probabilities are reported. masked: entries, indices into rows and counters,
    that a grammar binds: Masks of the step say which ids they may sample, and follow it.
    """

    rows: tuple[int, ...] = ()
    counters: tuple[int, ...] = ()
    scored: tuple[Scored, ...] = ()
    masked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Masks:
    """Of step `number`. bits: a row for each entry of Sample.masked, in 32-bit words; id i is allowed where bit i % 32
    of word i // 32 is set."""

    number: int
    bits: bytes


MaskSource = Callable[[int], Masks]  # waits for the masks of the step of this number


def no_masks(number: int) -> Masks:
    """For devices whose steps have no bound rows."""
    raise ValueError(f"step {number} has rows with a grammar, but no masks are sent for it")


@dataclass(frozen=True, slots=True)
class Step:
    """number rises by one from 1. graph and path name what every rank must have; no rows make a heartbeat."""

    number: int
    forward: Forward
    sample: Sample
    graph: str = EAGER
    path: str = LOCAL


@dataclass(frozen=True, slots=True)
class StepResult:
    """ids: one for each entry of Sample.rows, in that order. failed: entries whose logits were not finite.

    scores: (entry, log-probabilities of its token, packed as in engine.proto) where requested. prompts: one for each
    entry of Sample.scored; empty when its logits were not finite.
    """

    number: int
    ids: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    scores: tuple[tuple[int, bytes], ...] = ()
    prompts: tuple[bytes, ...] = ()
