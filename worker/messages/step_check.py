"""Whether a step can be computed as it stands: checked where a step is made and by each rank before it computes.

The checker follows the steps of one incarnation and knows, by slot, the block table and the next position:

    table      | shared | shared | own | own | own |      own from the block of the slot's first row on
    position                       first ---> next        each row continues where the slot's last one ended

A block has one slot that may write it, or any number that only read it. A slot that loses a block, because it is zeroed
or another slot may write it from now on, must be admitted again before a row names it. A block is shared at the entry
of the table at which it was computed: its keys hold their positions.

Most steps have the rows of the step before and only start where they ended: they cost a comparison. What must be done
for each row is done by functions of C (its cost: docs/decisions/0015).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import add, itemgetter, le, lt

from octavo.worker.errors import WorkerError
from octavo.worker.messages.step import Admit, Blocks, Forward, Sample, Step

_NONE = -1


class InvalidStep(WorkerError, ValueError):
    """A step that no rank may compute. The message names the step, the row or slot, and what is wrong."""


@dataclass(slots=True)
class _Rows:
    """Rows of a step. As long as its batch has the same, only where they start must be compared.

    ends: where each row's slot has come to. covered: picks the entries of the slots (and one more) from a list by slot.
    """

    slots: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    covered: Callable[[list[int]], tuple[int, ...]] = tuple


class StepCheck:
    def __init__(self, *, slots: int, blocks: int, block_size: int, max_batch_tokens: int, context_length: int) -> None:
        self._size = block_size
        self._max_tokens = max_batch_tokens
        self._context_length = context_length
        self._tables: list[list[int]] = [[] for _ in range(slots)]
        self._covered = [0] * slots  # positions that the table covers
        self._own = [0] * slots  # first entry of the table that the slot may write
        self._next: dict[int, int] = {}  # of slots whose request has had a row
        self._admitted: dict[int, int] = {}  # known tokens, of slots whose request has had none
        self._writer = [_NONE] * blocks  # slot that may write a block
        self._kept = [_NONE] * blocks  # entry at which a request that has left its slot computed a block to its end
        self._readers: dict[int, set[int]] = {}  # slots, by block that they share
        self._rows: dict[int, _Rows] = {}  # of the last step of each micro-batch, by their first slot
        self._all_rows = tuple(range(slots))

    def check(self, step: Step) -> None:
        """Follow one step more. Raises InvalidStep; every slot that it names must then be admitted again."""
        forward = step.forward
        try:
            if forward.zeroed:
                self._zero(forward.zeroed)
            for admit in forward.admits:
                self._admit(admit)
            if forward.blocks:
                self._extend(forward.blocks)
            if forward.slots:
                self._check_rows(forward)
            self._check_sample(forward, step.sample)
        except InvalidStep as error:
            changed = (*(admit.slot for admit in forward.admits), *(blocks.slot for blocks in forward.blocks))
            for slot in {*forward.slots, *changed}:
                if 0 <= slot < len(self._tables):
                    self._release(slot)
            raise InvalidStep(f"step {step.number}: {error}") from None

    # Changes

    def _zero(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if not 0 <= block < len(self._writer):
                raise InvalidStep(f"block {block} of a pool of {len(self._writer)} is zeroed")
            self._invalidate(block)

    def _admit(self, admit: Admit) -> None:
        slot = admit.slot
        if not 0 <= slot < len(self._tables):
            raise InvalidStep(f"slot {slot} of {len(self._tables)} is admitted")
        if not 0 < len(admit.tokens) <= self._context_length:
            raise InvalidStep(f"slot {slot}: {len(admit.tokens)} tokens in a context of {self._context_length}")
        self._release(slot)
        self._tables[slot], self._covered[slot] = [], 0
        self._admitted[slot] = len(admit.tokens)

    def _extend(self, changes: Iterable[Blocks]) -> None:
        running, tables, covered = self._next, self._tables, self._covered
        size, most, pool = self._size, self._context_length, len(self._writer)
        for slot, first, added in changes:
            runs = slot in running
            if not runs and slot not in self._admitted:
                raise InvalidStep(f"slot {slot} gets blocks and holds no request")
            table = tables[slot]
            if first != len(table):
                raise InvalidStep(f"slot {slot}: blocks from entry {first} on, its table has {len(table)}")
            if added and not (min(added) >= 0 and max(added) < pool):
                raise InvalidStep(f"slot {slot}: blocks {added} of a pool of {pool}")
            if runs:
                self._claim(slot, added)
            table += added
            covers = len(table) * size
            covered[slot] = covers if covers < most else most

    def _claim(self, slot: int, blocks: Sequence[int]) -> None:
        """The slot alone writes these blocks, which follow in its table."""
        writer, kept, readers = self._writer, self._kept, self._readers
        for number, block in enumerate(blocks):
            if writer[block] != _NONE or block in readers:
                if writer[block] == slot:
                    for claimed in blocks[:number]:
                        writer[claimed] = _NONE
                    raise InvalidStep(f"slot {slot} holds block {block} twice")
                self._invalidate(block)
            writer[block], kept[block] = slot, _NONE

    def _invalidate(self, block: int) -> None:
        """Its contents go, and slots that need them may compute no more."""
        if (writer := self._writer[block]) != _NONE:
            self._release(writer)
        for reader in [*self._readers.get(block, ())]:
            self._release(reader)
        self._kept[block] = _NONE

    def _release(self, slot: int) -> None:
        """The slot holds no request; what it computed stays, for the slots that share it."""
        self._admitted.pop(slot, None)
        if slot not in self._next:
            return
        self._settle({slot})
        end = self._next.pop(slot)
        table, own, writer, kept, readers = self._tables[slot], self._own[slot], self._writer, self._kept, self._readers
        for block in table[own:]:
            writer[block] = _NONE
        for entry in range(own, end // self._size):
            kept[table[entry]] = entry
        for block in table[:own]:
            readers[block].discard(slot)
            if not readers[block]:
                del readers[block]

    # Rows

    def _check_rows(self, forward: Forward) -> None:
        slots, starts, counts, rows = forward.slots, forward.starts, forward.counts, self._rows.get(forward.slots[0])
        if rows is not None and slots == rows.slots and counts == rows.counts and not self._admitted:
            before: tuple[int | None, ...] = rows.ends
        else:
            self._check_shape(forward)
            before = tuple(map(self._next.get, slots))
            rows = _Rows(slots, counts, covered=itemgetter(*slots, slots[0]))
        if starts != before:
            raise self._discontinuous(forward)
        rows.ends = tuple(map(add, starts, counts))
        self._rows[slots[0]] = rows
        if not all(map(le, rows.ends, covered := rows.covered(self._covered))):
            row = next(row for row, end in enumerate(rows.ends) if end > covered[row])
            raise InvalidStep(f"{_row(forward, row)}: its blocks cover {covered[row]} positions")

    def _discontinuous(self, forward: Forward) -> InvalidStep:
        self._settle(set(forward.slots))
        row, end = next(
            (row, end) for row, end in enumerate(map(self._next.get, forward.slots)) if end != forward.starts[row]
        )
        why = "its slot holds no request" if end is None else f"its slot's last row ended at {end}"
        return InvalidStep(f"{_row(forward, row)}: {why}")

    def _settle(self, slots: set[int]) -> None:
        """Write down where rows with one of these slots have come to, and compare the rows of the next step in full."""
        for rows in [rows for rows in self._rows.values() if not slots.isdisjoint(rows.slots)]:
            del self._rows[rows.slots[0]]
            self._next.update(zip(rows.slots, rows.ends, strict=True))

    def _check_shape(self, forward: Forward) -> None:
        """What stays true of rows for as long as they are the same."""
        slots, counts = forward.slots, forward.counts
        if not len(slots) == len(forward.starts) == len(counts):
            raise InvalidStep(f"{len(slots)} slots, {len(forward.starts)} starts and {len(counts)} counts")
        decoding = counts.count(1)
        chunks = counts[decoding:]
        if chunks and min(chunks) < 1:
            raise InvalidStep(f"{_row(forward, counts.index(min(counts)))}: no tokens")
        if 1 in chunks:
            raise InvalidStep(f"rows of one token must come first, counts are {counts}")
        if len(named := set(slots)) < len(slots):
            raise InvalidStep(f"a slot has two rows, slots are {slots}")
        self._settle(named)
        if (tokens := decoding + sum(chunks)) > self._max_tokens:
            raise InvalidStep(f"{tokens} tokens, the most are {self._max_tokens}")
        if self._admitted:
            self._begin(forward, named)

    def _begin(self, forward: Forward, named: set[int]) -> None:
        """First rows: what lies before them in the table is shared, and must have been computed."""
        for slot in [slot for slot in self._admitted if slot in named]:
            known = self._admitted.pop(slot)
            row = forward.slots.index(slot)
            start = forward.starts[row]
            if start % self._size or not 0 <= start < known or start + forward.counts[row] > known:
                raise InvalidStep(f"{_row(forward, row)}: first of a request of {known} tokens, blocks of {self._size}")
            entry = start // self._size
            shared, own = self._tables[slot][:entry], self._tables[slot][entry:]
            self._settle({self._writer[block] for block in shared})
            missing = next((block for at, block in enumerate(shared) if not self._is_full(block, at)), None)
            if missing is not None:
                raise InvalidStep(f"{_row(forward, row)}: block {missing} before it is not computed")
            if not set(shared).isdisjoint(own):
                raise InvalidStep(f"{_row(forward, row)}: its slot holds a block twice")
            self._claim(slot, own)
            self._own[slot], self._next[slot] = entry, start
            for block in shared:
                self._readers.setdefault(block, set()).add(slot)

    def _is_full(self, block: int, entry: int) -> bool:
        """Whether the block was computed to its end, at this entry of a table."""
        if (writer := self._writer[block]) == _NONE:
            return self._kept[block] == entry
        return self._tables[writer][entry : entry + 1] == [block] and (entry + 1) * self._size <= self._next[writer]

    def _check_sample(self, forward: Forward, sample: Sample) -> None:
        rows, number = sample.rows, len(forward.slots)
        if len(sample.counters) != len(rows):
            raise InvalidStep(f"{len(rows)} rows are sampled with {len(sample.counters)} counters")
        if rows and rows[-1] >= number:
            raise InvalidStep(f"row {rows[-1]} of {number} is sampled")
        if rows != self._all_rows[: len(rows)] and not (rows[0] >= 0 and all(map(lt, rows, rows[1:]))):
            raise InvalidStep(f"sampled rows must rise, they are {rows}")
        for row, first, positions in sample.scored:
            if not (0 <= row < number and first >= 0 and positions > 0 and first + positions <= forward.counts[row]):
                raise InvalidStep(f"row {row} of {number}: {positions} positions from offset {first} on are scored")
        if sample.masked and not (min(sample.masked) >= 0 and max(sample.masked) < len(rows)):
            raise InvalidStep(f"entries {sample.masked} of {len(rows)} are masked")


def _row(forward: Forward, row: int) -> str:
    return f"row {row} (slot {forward.slots[row]}, start {forward.starts[row]}, count {forward.counts[row]})"
