"""Whether a step can be computed as it stands: checked where a step is made and by each rank before it computes.

The checker follows the steps of one incarnation and knows, by slot, the block table and the next position:

    table      | shared | shared | own | own | own |      own from the block of the slot's first row on
    position                       first ---> next        each row continues where the slot's last one ended

A block has one slot that may write it, or any number that only read it. A slot that loses a block, because it is zeroed
or another slot may write it from now on, must be admitted again before a row names it.

Most steps have the rows of the step before and only start where they ended: they cost a comparison. What must be done
for each row is done by functions of C (its cost: docs/decisions/0015).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import add, le, lt

from octavo.worker.errors import WorkerError
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Step

_NO_SLOT = -1


class InvalidStep(WorkerError, ValueError):
    """A step that no rank may compute. The message names the step, the row or slot, and what is wrong."""


@dataclass(slots=True)
class _Rows:
    """Rows of the last step. As long as a step has the same, only where they start must be compared.

    ends: where each row's slot has come to; capacity: positions that its blocks cover.
    """

    slots: tuple[int, ...]
    counts: tuple[int, ...]
    ends: tuple[int, ...]
    capacity: list[int]
    index: dict[int, int]  # row by slot


_NO_ROWS = _Rows((), (), (), [], {})


class StepCheck:
    def __init__(self, *, slots: int, blocks: int, block_size: int, max_batch_tokens: int, context_length: int) -> None:
        self._size = block_size
        self._max_tokens = max_batch_tokens
        self._context_length = context_length
        self._tables: list[list[int]] = [[] for _ in range(slots)]
        self._capacity = [0] * slots  # positions that the table covers
        self._own = [0] * slots  # first entry of the table that the slot may write
        self._next: dict[int, int] = {}  # of slots whose request has had a row
        self._admitted: dict[int, int] = {}  # known tokens, of slots whose request has had none
        self._writer = [_NO_SLOT] * blocks
        self._entry = [0] * blocks  # in the table of its writer
        self._readers: dict[int, set[int]] = {}  # by block that slots share
        self._rows = _NO_ROWS
        self._sampled: tuple[int, ...] = ()  # rows of the last step, known to rise
        self._full: set[int] = set()  # blocks computed to their end by a request that has left its slot

    def check(self, step: Step) -> None:
        """Follow one step more. Raises InvalidStep; every slot that it names must then be admitted again."""
        forward = step.forward
        try:
            self._invalidate(forward.zeroed)
            for admit in forward.admits:
                self._admit(admit)
            for blocks in forward.blocks:
                self._extend(blocks)
            if forward.slots:
                self._check_rows(forward)
            self._check_sample(forward, step.sample)
        except InvalidStep as error:
            for slot in {*forward.slots, *(admit.slot for admit in forward.admits)}:
                if 0 <= slot < len(self._tables):
                    self._release(slot)
            raise InvalidStep(f"step {step.number}: {error}") from None

    # Changes

    def _admit(self, admit: Admit) -> None:
        slot = admit.slot
        if not 0 <= slot < len(self._tables):
            raise InvalidStep(f"slot {slot} of {len(self._tables)} is admitted")
        if not 0 < len(admit.tokens) <= self._context_length:
            raise InvalidStep(f"slot {slot}: {len(admit.tokens)} tokens in a context of {self._context_length}")
        self._release(slot)
        self._tables[slot], self._capacity[slot] = [], 0
        self._admitted[slot] = len(admit.tokens)

    def _extend(self, blocks: Blocks) -> None:
        slot, first, added = blocks
        runs = slot in self._next
        if not runs and slot not in self._admitted:
            raise InvalidStep(f"slot {slot} gets blocks and holds no request")
        table = self._tables[slot]
        if first != len(table):
            raise InvalidStep(f"slot {slot}: blocks from entry {first} on, its table has {len(table)}")
        if added and not (min(added) >= 0 and max(added) < len(self._writer)):
            raise InvalidStep(f"slot {slot}: blocks {added} of a pool of {len(self._writer)}")
        table += added
        self._capacity[slot] = capacity = min(len(table) * self._size, self._context_length)
        if runs:
            if (row := self._rows.index.get(slot)) is not None:
                self._rows.capacity[row] = capacity
            self._claim(slot, first, added)

    def _claim(self, slot: int, first: int, blocks: Sequence[int]) -> None:
        """The slot alone writes these blocks of its table, from entry `first` on."""
        writers, entries, readers, full = self._writer, self._entry, self._readers, self._full
        for entry, block in enumerate(blocks, first):
            if (writer := writers[block]) != _NO_SLOT or block in readers:
                if writer == slot:
                    raise InvalidStep(f"slot {slot} holds block {block} twice")
                self._invalidate((block,))
            writers[block], entries[block] = slot, entry
            full.discard(block)

    def _invalidate(self, blocks: Iterable[int]) -> None:
        """The contents of these blocks go, and slots that need them may compute no more."""
        for block in blocks:
            if not 0 <= block < len(self._writer):
                raise InvalidStep(f"block {block} of a pool of {len(self._writer)} is zeroed")
            if (writer := self._writer[block]) != _NO_SLOT:
                self._release(writer)
            for reader in [*self._readers.get(block, ())]:
                self._release(reader)
            self._full.discard(block)

    def _release(self, slot: int) -> None:
        """The slot holds no request; what it computed stays, for the slots that share it."""
        self._admitted.pop(slot, None)
        if slot in self._rows.index:
            self._settle()
        end = self._next.pop(slot, None)
        if end is None:
            return
        table, own = self._tables[slot], self._own[slot]
        for block in table[own:]:
            if self._writer[block] == slot:
                self._writer[block] = _NO_SLOT
        self._full.update(table[own : end // self._size])
        for block in table[:own]:
            readers = self._readers[block]
            readers.discard(slot)
            if not readers:
                del self._readers[block]

    # Rows

    def _check_rows(self, forward: Forward) -> None:
        slots, starts = forward.slots, forward.starts
        if self._admitted or slots != self._rows.slots or forward.counts != self._rows.counts:
            self._settle()
            self._check_shape(forward)
            if starts != tuple(map(self._next.get, slots)):
                raise self._discontinuous(forward)
            capacity = [self._capacity[slot] for slot in slots]
            self._rows = _Rows(slots, forward.counts, starts, capacity, dict(zip(slots, count())))
        rows = self._rows
        if starts != rows.ends:
            self._settle()
            raise self._discontinuous(forward)
        rows.ends = ends = tuple(map(add, starts, rows.counts))
        if not all(map(le, ends, rows.capacity)):
            row = next(row for row, end in enumerate(ends) if end > rows.capacity[row])
            raise InvalidStep(f"{_row(forward, row)}: its blocks cover {rows.capacity[row]} positions")

    def _discontinuous(self, forward: Forward) -> InvalidStep:
        row, end = next(
            (row, end) for row, end in enumerate(map(self._next.get, forward.slots)) if end != forward.starts[row]
        )
        why = "its slot holds no request" if end is None else f"its slot's last row ended at {end}"
        return InvalidStep(f"{_row(forward, row)}: {why}")

    def _settle(self) -> None:
        """Write down where the rows of the last step have come to, and compare the next step's in full."""
        rows, self._rows = self._rows, _NO_ROWS
        self._next.update(zip(rows.slots, rows.ends, strict=True))

    def _check_shape(self, forward: Forward) -> None:
        """What stays true of decode rows for as long as they are the same."""
        slots, counts = forward.slots, forward.counts
        if not len(slots) == len(forward.starts) == len(counts):
            raise InvalidStep(f"{len(slots)} slots, {len(forward.starts)} starts and {len(counts)} counts")
        if min(counts) < 1:
            raise InvalidStep(f"{_row(forward, counts.index(min(counts)))}: no tokens")
        if 1 in counts[counts.count(1) :]:
            raise InvalidStep(f"rows of one token must come first, counts are {counts}")
        if len(set(slots)) < len(slots):
            raise InvalidStep(f"a slot has two rows, slots are {slots}")
        if (tokens := sum(counts)) > self._max_tokens:
            raise InvalidStep(f"{tokens} tokens, the most are {self._max_tokens}")
        if self._admitted:
            self._begin(forward)

    def _begin(self, forward: Forward) -> None:
        """First rows: what lies before them in the table is shared, and must have been computed."""
        for row, slot in enumerate(forward.slots):
            if slot not in self._admitted:
                continue
            known, start = self._admitted.pop(slot), forward.starts[row]
            if start % self._size or not 0 <= start < known or start + forward.counts[row] > known:
                raise InvalidStep(f"{_row(forward, row)}: first of a request of {known} tokens, blocks of {self._size}")
            entry = start // self._size
            shared, own = self._tables[slot][:entry], self._tables[slot][entry:]
            if (missing := next((block for block in shared if not self._is_full(block)), None)) is not None:
                raise InvalidStep(f"{_row(forward, row)}: block {missing} before it is not computed")
            if not set(shared).isdisjoint(own):
                raise InvalidStep(f"{_row(forward, row)}: its slot holds a block twice")
            self._claim(slot, entry, own)
            self._own[slot], self._next[slot] = entry, start
            for block in shared:
                self._readers.setdefault(block, set()).add(slot)

    def _is_full(self, block: int) -> bool:
        if (writer := self._writer[block]) == _NO_SLOT:
            return block in self._full
        return (self._entry[block] + 1) * self._size <= self._next.get(writer, 0)

    def _check_sample(self, forward: Forward, sample: Sample) -> None:
        rows, number = sample.rows, len(forward.slots)
        if len(sample.counters) != len(rows):
            raise InvalidStep(f"{len(rows)} rows are sampled with {len(sample.counters)} counters")
        if rows and rows[-1] >= number:
            raise InvalidStep(f"row {rows[-1]} of {number} is sampled")
        if rows != self._sampled:
            if rows and not (rows[0] >= 0 and all(map(lt, rows, rows[1:]))):
                raise InvalidStep(f"sampled rows must rise, they are {rows}")
            self._sampled = rows
        for row, first, positions in sample.scored:
            if not (0 <= row < number and first >= 0 and positions > 0 and first + positions <= forward.counts[row]):
                raise InvalidStep(f"row {row} of {number}: {positions} positions from offset {first} on are scored")
        if sample.masked and not (min(sample.masked) >= 0 and max(sample.masked) < len(rows)):
            raise InvalidStep(f"entries {sample.masked} of {len(rows)} are masked")


def _row(forward: Forward, row: int) -> str:
    return f"row {row} (slot {forward.slots[row]}, start {forward.starts[row]}, count {forward.counts[row]})"
