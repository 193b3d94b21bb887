"""Shared memory on which the processes of a worker pod show how they are; the supervisor only reads it.

Every value is one aligned 64-bit word with one writer, so a reader never sees half of one. Times are
CLOCK_MONOTONIC nanoseconds, the same clock in every process of the machine.

    word 0..15     slot of serve         words of a slot: see ProcessSlot
    word 16..31    slot of core
    word 32..1055  slots of the group's ranks; in the leader's pod serve keeps the slots of other pods' ranks
    word 1056..    counters and gauges of the core, one of serve: see Gauge
"""

import enum
import mmap
import os
import time

from octavo.shared.limits import MAX_RANKS

_BYTES = 3 * 4096
_SLOT_WORDS = 16
_GAUGES = (2 + MAX_RANKS) * _SLOT_WORDS
SERVE, CORE, RANK = 0, 1, 2  # slot numbers; rank r of the group has RANK + r


class ProcessSlot(enum.IntEnum):
    """Words of a process's slot."""

    HEARTBEAT = 0  # when it last went round its loop, a rank's: when it last was not stopped; 0: not yet
    PHASE = 1  # a value of proto Phase
    PROGRESS = 2  # percent of that phase
    ISSUED = 3  # core: last step issued; ranks: last step begun
    FINISHED = 4  # last step finished
    DEADLINE = 5  # core: when the oldest step outstanding is overdue; 0: none outstanding
    LATE = 6  # messages of an earlier incarnation that were refused: serve's of pods, a rank's of other ranks
    COLLECTIVE = 7  # ranks: a value of proto Transport, how the ranks of the stage are reached
    ACTIVATIONS = 8  # ranks: how the stages before and after are reached
    DIGEST = 9  # serve: the first half of the model's digest; 0: not known yet
    DIGEST_END = 10  # and the other half
    TO_COPY = 11  # ranks: bytes that the first sleep has yet to copy to the host


class Gauge(enum.IntEnum):
    """What the core counts; LATE_TOTAL: the sum of the slots' LATE. Gauges named *_TOTAL only grow in one
    incarnation."""

    RUNNING = 0
    WAITING = 1
    BLOCKS_FREE = 2
    BLOCKS_TOTAL_SIZE = 3
    PROMPT_TOKENS_TOTAL = 4
    GENERATED_TOKENS_TOTAL = 5
    PREEMPTIONS_TOTAL = 6
    PREFIX_HIT_TOKENS_TOTAL = 7
    STEPS_TOTAL = 8
    STEP_NANOSECONDS_TOTAL = 9
    REQUESTS_TOTAL = 10
    CANCELLED_TOTAL = 11
    BLOCKS_CACHED = 12
    CONTEXT_LENGTH = 13
    LATE_TOTAL = 14
    INVALID_STEPS_TOTAL = 15


def create() -> int:
    """A new board's memfd, all zero."""
    fd = os.memfd_create("octavo-board", os.MFD_CLOEXEC)
    os.ftruncate(fd, _BYTES)
    return fd


class Board:
    """A view of the pages."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _BYTES)
        self._words = memoryview(self._map).cast("Q")

    def read(self, slot: int, word: ProcessSlot) -> int:
        return self._words[slot * _SLOT_WORDS + word]

    def write(self, slot: int, word: ProcessSlot, value: int) -> None:
        self._words[slot * _SLOT_WORDS + word] = value

    def beat(self, slot: int, ago_ns: int = 0) -> None:
        """Show that the process of this slot was alive, so long ago."""
        self._words[slot * _SLOT_WORDS + ProcessSlot.HEARTBEAT] = time.monotonic_ns() - ago_ns

    def gauge(self, gauge: Gauge) -> int:
        return self._words[_GAUGES + gauge]

    def set(self, gauge: Gauge, value: int) -> None:
        self._words[_GAUGES + gauge] = value

    def add(self, gauge: Gauge, value: int) -> None:
        self._words[_GAUGES + gauge] += value

    def gauges(self) -> dict[Gauge, int]:
        late = sum(self.read(slot, ProcessSlot.LATE) for slot in range(RANK + MAX_RANKS))
        return {gauge: self._words[_GAUGES + gauge] for gauge in Gauge} | {Gauge.LATE_TOTAL: late}

    def close(self) -> None:
        self._words.release()
        self._map.close()
