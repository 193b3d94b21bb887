"""One leader's address: a Serve stream kept open to it for as long as the address is wanted.

    connecting --Welcome--> open --Draining--> open, takes nothing new
        ^  back-off <= 2 s   |
        +----- broken <------+   ended, failed, or 10 s of silence

Each attempt is a fresh channel and a fresh Stream: numbers, credit and requests die with it.
"""

import asyncio
import logging
import random
from collections.abc import Callable

import grpc

from octavo.proto.v1 import engine_pb2, engine_pb2_grpc
from octavo.router import wire
from octavo.router.generation import Model
from octavo.router.stream import Broken, Listener, Stream
from octavo.router.tls import Dial

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 5.0
TICK_S = 1.0
SILENT_TICKS = 10  # the leader repeats its credit every second; so much silence is a dead peer or a cut wire
HEARTBEAT_TICKS = 3
FIRST_BACK_OFF_S = 0.1
MAX_BACK_OFF_S = 2.0
MAX_LOCAL_BACK_OFF_S = 0.2  # a Unix socket: a refusal costs nothing, and on one machine both ends start together

ServeCall = grpc.aio.StreamStreamCall[engine_pb2.FromRouter, engine_pb2.FromEngine]


class Upstream:
    """Keeps a stream to one address; `run` until cancelled."""

    def __init__(self, address: str, dial: Dial, hello: engine_pb2.FromRouter, listener: Listener) -> None:
        self.address = address
        self.stream: Stream | None = None
        self.last_error = ""
        self._was_open = False
        self._dial = dial
        self._hello = hello
        self._listener = listener

    async def run(self, known: Callable[[str], Model | None]) -> None:
        """known: a model already fetched, by fingerprint."""
        back_off = FIRST_BACK_OFF_S
        longest = MAX_LOCAL_BACK_OFF_S if self.address.startswith("unix:") else MAX_BACK_OFF_S
        while True:
            try:
                await self._attempt(known)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, Broken, TimeoutError, OSError, ValueError) as error:
                self._note(error)
            except Exception:  # a bug of ours must not cost the group: the next attempt begins from nothing
                log.exception("group %s: the stream failed", self.address)
            finally:
                stream, self.stream = self.stream, None
                if stream is not None:
                    self._listener.lost(stream)
            back_off = FIRST_BACK_OFF_S if stream is not None else min(back_off * 2, longest)
            await asyncio.sleep(back_off * random.uniform(0.5, 1.0))

    async def _attempt(self, known: Callable[[str], Model | None]) -> None:
        channel = self._dial(self.address)
        stub = engine_pb2_grpc.EngineStub(channel)
        call: ServeCall = stub.Serve()
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await call.write(self._hello)
                first = await _read(call)
                if first is None or first.WhichOneof("kind") != "welcome":
                    raise Broken("the leader did not begin with a Welcome")
                model = known(first.welcome.fingerprint) or await fetch_model(stub, first.welcome)
            self.stream = stream = Stream(self.address, first.welcome, self._listener)
            self.last_error = ""
            self._was_open = True
            log.info("group %s: open, incarnation %s, revision %s", self.address, stream.incarnation, stream.revision)
            self._listener.opened(stream, model)
            stream.handle(first)
            await self._carry(call, stream)
        finally:
            call.cancel()
            await channel.close()

    async def _carry(self, call: ServeCall, stream: Stream) -> None:
        helpers = [asyncio.ensure_future(_write(call, stream)), asyncio.ensure_future(_watch(call, stream))]
        try:
            while (message := await _read(call)) is not None:
                stream.handle(message)
        finally:
            for helper in helpers:
                helper.cancel()
        self.last_error = "the leader ended the stream"

    def _note(self, error: Exception) -> None:
        text = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.aio.AioRpcError) else str(error)
        if isinstance(error, TimeoutError):
            text = f"no Welcome within {HANDSHAKE_TIMEOUT_S:.0f} s"
        text = text or type(error).__name__
        if text != self.last_error:
            # A group on this machine starts together with the router: that it is not there yet is no news.
            starting = self.address.startswith("unix:") and not self._was_open
            log.log(logging.INFO if starting else logging.WARNING, "group %s: %s", self.address, text)
        self.last_error = text


async def _read(call: ServeCall) -> engine_pb2.FromEngine | None:
    """The next message; None: the leader ended the stream."""
    try:
        message = await call.read()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Not this task but the call was cancelled, which only the watch does.
        raise Broken(f"nothing heard for {SILENT_TICKS * TICK_S:.0f} s") from None
    return message if isinstance(message, engine_pb2.FromEngine) else None


async def _write(call: ServeCall, stream: Stream) -> None:
    """Send what the outbox holds, in order. A failure is the reader's to report."""
    try:
        while True:
            while stream.outbox:
                await call.write(wire.bundle(stream.outbox))
            stream.wake.clear()
            await stream.wake.wait()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return


async def _watch(call: ServeCall, stream: Stream) -> None:
    """Cancel the call after too many silent ticks. Ticks, so that a router that was itself stopped blames nobody."""
    silent = ticks = 0
    while silent < SILENT_TICKS:
        await asyncio.sleep(TICK_S)
        ticks += 1
        silent = 0 if stream.heard else silent + 1
        stream.heard = False
        if ticks % HEARTBEAT_TICKS == 0:
            stream.beat()
    call.cancel()


async def fetch_model(stub: "engine_pb2_grpc.EngineAsyncStub", welcome: engine_pb2.Welcome) -> Model:
    """The small files of a leader's model. Raises Broken when they are of another model."""
    files: dict[str, bytearray] = {}
    async for chunk in stub.Files(engine_pb2.FilesRequest()):
        if chunk.fingerprint != welcome.fingerprint:
            raise Broken(f"Files are of model {chunk.fingerprint}, the Welcome is of {welcome.fingerprint}")
        files.setdefault(chunk.name, bytearray()).extend(chunk.data)
    return Model(
        name=welcome.served_name,
        fingerprint=welcome.fingerprint,
        context_length=welcome.context_length,
        block_size=welcome.block_size,
        files={name: bytes(data) for name, data in files.items()},
        features=frozenset(welcome.features),
    )
