"""A one-way queue of records between two processes: shared memory, one writer, one reader, no locks.

    page 0   capacity | written | read | wanting        written and read only grow; each has one owner
    data     ... [length u32 | crc u32 | payload, padded to 8] ...      position = cursor mod capacity, records wrap

A record counts once `written` has moved past it, so a writer that dies half-way leaves nothing to read. The checksum
(payload and position) covers what a weakly ordered CPU may still show late: such a record is "not there yet". An x86
CPU shows what was written in its order; there the ends of a large payload are checked, since a checksum of the masks of
256 rows, 4 MB a step, takes longer than their copies.
A push never waits: False means full, and the writer is woken through `space` once the reader has made room.
"""

import mmap
import os
import platform
import struct
import zlib
from dataclasses import dataclass

from octavo.worker.errors import WorkerError

_PAGE = 4096
_RECORD = struct.Struct("<II")
_CAPACITY, _WRITTEN, _READ, _WANTING = 0, 8, 16, 24  # indices of uint64 words, a cache line apart
_PATIENCE = 1000  # reads of one bad record before it is called broken
_IN_ORDER = platform.machine() in ("x86_64", "AMD64")
_LARGE, _END = 64 << 10, 4 << 10  # bytes of a payload that is checked at its ends alone, and of each end


class RingBroken(WorkerError):
    """The shared memory holds a record that no writer can have written."""


@dataclass(frozen=True, slots=True)
class RingFds:
    """What a process inherits of a ring: the memory, and the eventfds `data` (there is something) and `space`."""

    memory: int
    data: int
    space: int

    def all(self) -> tuple[int, int, int]:
        return (self.memory, self.data, self.space)


def create(name: str, capacity: int) -> RingFds:
    """Memory for a ring of `capacity` bytes (a multiple of the page size), wake-ups included."""
    if capacity <= 0 or capacity % _PAGE:
        raise ValueError(f"ring {name}: capacity {capacity} is not a multiple of {_PAGE}")
    memory = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(memory, _PAGE + capacity)
    os.pwrite(memory, struct.pack("<Q", capacity), 8 * _CAPACITY)
    flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
    return RingFds(memory, os.eventfd(0, flags), os.eventfd(0, flags))


def checksum(payload: bytes, in_order: bool = _IN_ORDER) -> int:
    """As `push` makes it, for a record that goes into several rings. in_order: whether the CPU shows writes in their
    order."""
    if not in_order or len(payload) <= _LARGE:
        return zlib.crc32(payload)
    return zlib.crc32(payload[-_END:], zlib.crc32(payload[:_END]))


def clear(eventfd: int) -> None:
    """Take back a wake-up; none pending is fine."""
    try:
        os.eventfd_read(eventfd)
    except BlockingIOError:
        return


class _End:
    def __init__(self, fds: RingFds) -> None:
        self.fds = fds
        self._map = mmap.mmap(fds.memory, 0)
        self._words = memoryview(self._map)[:_PAGE].cast("Q")
        self.capacity = self._words[_CAPACITY]
        self._data = memoryview(self._map)[_PAGE : _PAGE + self.capacity]

    def close(self) -> None:
        """Unmap the memory. The fds belong to the process that made them."""
        self._words.release()
        self._data.release()
        self._map.close()


class RingWriter(_End):
    """The sending end."""

    @property
    def largest(self) -> int:
        """Bytes of the largest record that can ever fit."""
        return self.capacity - _RECORD.size - 8

    def push(self, payload: bytes, check: int | None = None) -> bool:
        """Append one record; False when it does not fit now. check: its checksum, where that is known. Raises
        ValueError when it never will fit."""
        if len(payload) > self.largest:
            raise ValueError(f"a record of {len(payload)} bytes is larger than the ring ({self.largest})")
        words = self._words
        written = words[_WRITTEN]
        size = _span(len(payload))
        if size > self.capacity - (written - words[_READ]):
            words[_WANTING] = 1
            if size > self.capacity - (written - words[_READ]):  # read again: room may have come before the flag
                return False
        check = checksum(payload) if check is None else check
        self._put(written, _RECORD.pack(len(payload), _placed(check, written)))
        self._put(written + _RECORD.size, payload)
        words[_WRITTEN] = written + size
        os.eventfd_write(self.fds.data, 1)
        return True

    def _put(self, cursor: int, payload: bytes) -> None:
        start = cursor % self.capacity
        head = min(len(payload), self.capacity - start)
        self._data[start : start + head] = payload[:head]
        if head < len(payload):
            self._data[: len(payload) - head] = payload[head:]


class RingReader(_End):
    """The receiving end."""

    def __init__(self, fds: RingFds) -> None:
        super().__init__(fds)
        self._bad = 0

    def pop(self) -> bytes | None:
        """The next record, or None when there is none yet."""
        words = self._words
        read = words[_READ]
        available = words[_WRITTEN] - read
        if not available:
            return None
        length, check = _RECORD.unpack(self._get(read, _RECORD.size))
        payload = self._get(read + _RECORD.size, length) if _span(length) <= available else b""
        if len(payload) != length or check != _placed(checksum(payload), read):
            self._not_yet(read)
            return None
        self._bad = 0
        words[_READ] = read + _span(length)
        if words[_WANTING]:
            words[_WANTING] = 0
            os.eventfd_write(self.fds.space, 1)
        return payload

    def _not_yet(self, read: int) -> None:
        self._bad += 1
        if self._bad > _PATIENCE:
            raise RingBroken(f"the record at {read} fails its checksum: the ring's memory was overwritten")
        os.eventfd_write(self.fds.data, 1)  # look again soon

    def _get(self, cursor: int, length: int) -> bytes:
        start = cursor % self.capacity
        head = min(length, self.capacity - start)
        if head == length:
            return bytes(self._data[start : start + head])
        return bytes(self._data[start:]) + bytes(self._data[: length - head])


def _span(length: int) -> int:
    return (_RECORD.size + length + 7) // 8 * 8


def _placed(check: int, cursor: int) -> int:
    """A record of an earlier lap, in the same place, has another."""
    return check ^ cursor & 0xFFFFFFFF
