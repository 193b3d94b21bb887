"""In a pod that does not lead: steps from the Join stream to the rings of its ranks, and what they say back onto it."""

import asyncio
from collections.abc import Callable

from octavo.worker.ipc import ring
from octavo.worker.ipc.process_context import Shared
from octavo.worker.ipc.ring import RingReader
from octavo.worker.ipc.ring_sender import RingSender, send_to_all


class StepReceiver:
    """On the supervisor's event loop; it never waits."""

    def __init__(self, shared: Shared, said: Callable[[bytes], None]) -> None:
        """said: called with each record of a rank."""
        self._senders = [RingSender(fds) for fds in shared.steps]
        self._readers = [RingReader(fds) for fds in shared.results]
        self._said = said
        self.broken: str | None = None  # why the rings cannot be read any more
        self._loop = asyncio.get_running_loop()
        for reader in self._readers:
            self._loop.add_reader(reader.fds.data, self._take, reader)
        for sender in self._senders:
            self._loop.add_reader(sender.fds.space, self._flush, sender)

    def step(self, record: bytes) -> None:
        send_to_all(self._senders, record)

    def _take(self, reader: RingReader) -> None:
        ring.clear(reader.fds.data)
        try:
            while (record := reader.pop()) is not None:
                self._said(record)
        except ring.RingBroken as error:
            self.broken = str(error)

    def _flush(self, sender: RingSender) -> None:
        ring.clear(sender.fds.space)
        sender.flush()

    def close(self) -> None:
        for reader in self._readers:
            self._loop.remove_reader(reader.fds.data)
            reader.close()
        for sender in self._senders:
            self._loop.remove_reader(sender.fds.space)
            sender.close()
