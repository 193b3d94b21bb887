"""A ring's sending end that never waits: what does not fit yet is kept, in order."""

from collections import deque
from collections.abc import Sequence

from octavo.worker.ipc.ring import RingFds, RingWriter, checksum


class RingSender:
    def __init__(self, fds: RingFds) -> None:
        self.fds = fds
        self._writer = RingWriter(fds)
        self._kept: deque[tuple[bytes, int]] = deque()  # records and their checksums

    @property
    def largest(self) -> int:
        """Bytes of the largest record."""
        return self._writer.largest

    @property
    def empty(self) -> bool:
        """Whether the ring has taken all that was sent."""
        return not self._kept

    def send(self, record: bytes, check: int | None = None) -> None:
        """Keep it until `flush` finds room. check: its checksum, where that is known."""
        self._kept.append((record, checksum(record) if check is None else check))

    def flush(self) -> None:
        """Push what fits. Call it when the reader has made room: fds.space is readable then."""
        while self._kept and self._writer.push(*self._kept[0]):
            self._kept.popleft()

    def close(self) -> None:
        self._writer.close()


def send_to_all(senders: Sequence[RingSender], record: bytes) -> None:
    check = checksum(record)
    for sender in senders:
        sender.send(record, check)
        sender.flush()
