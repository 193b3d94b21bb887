"""serve's ends of the rings to the core, on its event loop."""

import asyncio
from collections.abc import Callable

from octavo.worker.ipc import ring
from octavo.worker.ipc.process_context import Shared
from octavo.worker.ipc.ring import RingReader
from octavo.worker.ipc.ring_sender import RingSender


class CoreChannel:
    """Records to the core are kept in order while its ring is full; records from it are handed to `receive`."""

    def __init__(self, shared: Shared, receive: Callable[[bytes], None], received: Callable[[], None]) -> None:
        """received: called after each burst of records."""
        self._sender, self._reader = RingSender(shared.inbox), RingReader(shared.outbox)
        self._receive, self._received = receive, received
        self._room = asyncio.Event()
        self._room.set()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[None] = loop.create_future()  # fails when a record cannot be dealt with
        loop.add_reader(self._reader.fds.data, self._read)
        loop.add_reader(self._sender.fds.space, self._write)

    @property
    def largest(self) -> int:
        """Bytes of the largest record."""
        return self._sender.largest

    def send(self, record: bytes) -> None:
        """Never waits; a caller that sends much waits for `room` before."""
        self._sender.send(record)
        self._push()

    async def room(self) -> None:
        """Until the core has taken what was sent."""
        await self._room.wait()

    def _push(self) -> None:
        self._sender.flush()
        if self._sender.empty:
            self._room.set()
        else:
            self._room.clear()

    def _write(self) -> None:
        ring.clear(self._sender.fds.space)
        self._push()

    def _read(self) -> None:
        ring.clear(self._reader.fds.data)
        try:
            while (record := self._reader.pop()) is not None:
                self._receive(record)
            self._received()
        except Exception as error:  # whatever it is, requests would wait for ever for what was in that record
            asyncio.get_running_loop().remove_reader(self._reader.fds.data)
            self.broken.set_exception(error)
