"""A proxy in front of one listener, TCP or Unix, whose link a test delays, cuts or black-holes."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

from support.patience import PATIENCE_S

_CHUNK = 1 << 16
_WINDOW = 256  # chunks that a delayed link holds in each direction


class TcpProxy:
    """Start it with `with`. Addresses are `unix:/path` or `host:port`; delay_s holds for each direction."""

    def __init__(self, listen: str, target: str, delay_s: float = 0.0) -> None:
        self._listen, self._target = listen, target
        self.delay_s = delay_s
        self._down = False
        self._flows = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="proxy")

    def __enter__(self) -> "TcpProxy":
        self._thread.start()
        self._await(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._await(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def cut(self) -> None:
        """Break every connection, and each new one at once."""
        self._await(self._cut())

    def black_hole(self) -> None:
        """Pass nothing on, without a word: connections stay, and new ones seem to succeed."""
        self._await(self._let(False))

    def heal(self) -> None:
        """End a cut or a black hole; what the hole held goes on its way."""
        self._await(self._let(True))

    def _await(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _start(self) -> None:
        self._flows.set()
        if self._listen.startswith("unix:"):
            self._server = await asyncio.start_unix_server(self._take, self._listen.removeprefix("unix:"))
        else:
            host, _, port = self._listen.rpartition(":")
            self._server = await asyncio.start_server(self._take, host, int(port))

    async def _stop(self) -> None:
        self._server.close()
        await self._cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut(self) -> None:
        self._down = True
        for writer in self._open:
            writer.transport.abort()

    async def _let(self, flow: bool) -> None:
        self._down = False
        (self._flows.set if flow else self._flows.clear)()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.ExitStack() as ends:
            ends.callback(self._tasks.discard, task)
            ends.callback(writer.transport.abort)
            if self._down:
                return
            try:
                there_reader, there_writer = await self._dial()
                ends.callback(there_writer.transport.abort)
                both = {writer, there_writer}
                self._open |= both
                ends.callback(self._open.difference_update, both)
                await self._pass_both((reader, there_writer), (there_reader, writer))
            except* OSError:  # a side is gone, and so goes the other
                pass

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.startswith("unix:"):
            return await asyncio.open_unix_connection(self._target.removeprefix("unix:"))
        host, _, port = self._target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _pass_both(self, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """Until both ways have ended, or one broke."""
        async with asyncio.TaskGroup() as group:
            for reader, writer in ways:
                late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_WINDOW)
                group.create_task(self._read(reader, late))
                group.create_task(self._write(late, writer))

    async def _read(self, reader: asyncio.StreamReader, late: "asyncio.Queue[tuple[float, bytes]]") -> None:
        chunk = b"-"
        while chunk:
            chunk = await reader.read(_CHUNK)
            await late.put((self._loop.time() + self.delay_s, chunk))

    async def _write(self, late: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        while True:
            due_s, chunk = await late.get()
            await asyncio.sleep(due_s - self._loop.time())
            await self._flows.wait()
            if not chunk:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()
