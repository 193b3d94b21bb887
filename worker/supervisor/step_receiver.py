"""In a pod that does not lead: steps from the Join stream to the rings of its ranks, and what they say back onto it."""

import asyncio
from collections.abc import Callable

from octavo.worker.ipc import ring
from octavo.worker.ipc.process_context import Shared
from octavo.worker.ipc.ring import Reader
from octavo.worker.ipc.ring_sender import Outlet


class StepReceiver:
    """On the supervisor's event loop; it never waits."""

    def __init__(self, shared: Shared, said: Callable[[bytes], None]) -> None:
        """said: called with each record of a rank."""
        self._outlets = [Outlet(fds) for fds in shared.steps]
        self._readers = [Reader(fds) for fds in shared.results]
        self._said = said
        self.broken: str | None = None  # why the rings cannot be read any more
        self._loop = asyncio.get_running_loop()
        for reader in self._readers:
            self._loop.add_reader(reader.fds.data, self._take, reader)
        for outlet in self._outlets:
            self._loop.add_reader(outlet.fds.space, self._flush, outlet)

    def step(self, record: bytes) -> None:
        for outlet in self._outlets:
            outlet.send(record)
            outlet.flush()

    def _take(self, reader: Reader) -> None:
        ring.clear(reader.fds.data)
        try:
            while (record := reader.pop()) is not None:
                self._said(record)
        except ring.RingBroken as error:
            self.broken = str(error)

    def _flush(self, outlet: Outlet) -> None:
        ring.clear(outlet.fds.space)
        outlet.flush()

    def close(self) -> None:
        for reader in self._readers:
            self._loop.remove_reader(reader.fds.data)
            reader.close()
        for outlet in self._outlets:
            self._loop.remove_reader(outlet.fds.space)
            outlet.close()
