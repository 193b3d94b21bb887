"""One leader's address: a Serve stream kept open to it for as long as the address is wanted.

    connecting --Welcome--> open --Draining--> open, takes nothing new
        ^  back-off <= 2 s   |
        +----- broken <------+   ended, failed, or 10 s of silence

Each attempt has a new channel and a new LeaderStream: numbers, credit and requests end with it. Nothing that an attempt
or its listener raises ends the keeper: only its own task's cancellation does.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress

import grpc

from octavo import release
from octavo.proto.v1 import engine_pb2, engine_pb2_grpc
from octavo.router.dispatch import wire
from octavo.router.dispatch.contained_listener import ContainedListener
from octavo.router.dispatch.leader_stream import LeaderStream, StreamBroken, StreamListener
from octavo.router.dispatch.tls import Dial
from octavo.router.internal_errors import InternalErrors
from octavo.router.jobs.generation import Model

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 5.0
TICK_S = 1.0
SILENT_TICKS = 10  # the leader repeats its credit every second; so much silence is a dead peer or a cut wire
HEARTBEAT_TICKS = 3
FIRST_BACK_OFF_S = 0.1
MAX_BACK_OFF_S = 2.0
LOCAL_BACK_OFF_S = 0.05  # a Unix socket: a refusal costs nothing, and on one machine both ends start together

ServeCall = grpc.aio.StreamStreamCall[engine_pb2.FromRouter, engine_pb2.FromEngine]


class VersionSkew(StreamBroken):
    """The leader is of a release with which this one does not work together."""


class Upstream:
    """Keeps a stream to one address; `run` until cancelled. skew: why its release and the leader's do not work
    together; "" if they do, or if that is not known."""

    def __init__(
        self, address: str, dial: Dial, hello: engine_pb2.FromRouter, listener: StreamListener, errors: InternalErrors
    ) -> None:
        self.address = address
        self.stream: LeaderStream | None = None
        self.last_error = ""
        self.skew = ""
        self._was_open = False
        self._dial = dial
        self._hello = hello
        self._listener = ContainedListener(listener, errors)
        self._errors = errors
        self._loop = asyncio.get_running_loop()
        self._is_held = False
        self._missing_since = self._loop.time()
        self._cancel_reason = ""

    @property
    def missing_s(self) -> float | None:
        """For how long no stream has been open; None: one is."""
        return None if self._is_held else self._loop.time() - self._missing_since

    async def run(self, known: Callable[[str], Model | None]) -> None:
        """known: a model already fetched, by digest."""
        local = self.address.startswith("unix:")
        first, longest = (LOCAL_BACK_OFF_S, LOCAL_BACK_OFF_S) if local else (FIRST_BACK_OFF_S, MAX_BACK_OFF_S)
        back_off = first
        while True:
            was_open = await self._try(known)
            back_off = first if was_open else min(back_off * 2, longest)
            await asyncio.sleep(back_off * random.uniform(0.5, 1.0))

    async def _try(self, known: Callable[[str], Model | None]) -> bool:
        """Run one attempt to its end; True when a stream was open."""
        try:
            await self._attempt(known)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, StreamBroken, TimeoutError, OSError, ValueError) as error:
            self._note(error)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            self._note(StreamBroken(self._cancel_reason or "the call was cancelled"))
        except Exception as error:  # a bug of ours must not cost the group: the next attempt begins from nothing
            self._errors.note(error, "group %s: the stream", self.address)
        finally:
            stream, self.stream = self.stream, None
            if self._is_held:
                self._is_held, self._missing_since = False, self._loop.time()
            if stream is not None:
                stream.close()
                self._listener.lost(stream)
        return stream is not None

    async def _attempt(self, known: Callable[[str], Model | None]) -> None:
        self._cancel_reason = ""
        channel = self._dial(self.address)
        stub = engine_pb2_grpc.EngineStub(channel)
        call: ServeCall = stub.Serve()
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await call.write(self._hello)
                first = await _read(call)
                if first is None or first.WhichOneof("kind") != "welcome":
                    raise StreamBroken("the leader did not begin with a Welcome")
                if skew := release.skew("the group", first.welcome.release, first.welcome.protocol, "this router"):
                    raise VersionSkew(skew)
                model = known(first.welcome.digest) or await fetch_model(stub, first.welcome)
            self.stream = stream = LeaderStream(self.address, first.welcome, self._listener)
            self._listener.opened(stream, model)
            self.last_error = self.skew = ""
            self._was_open = self._is_held = True
            log.info(
                "group %s: open, incarnation %s, release %s, revision %s, model %s, context %d",
                self.address,
                stream.incarnation,
                first.welcome.release or "unknown",
                stream.revision,
                stream.digest,
                stream.context_length,
            )
            stream.handle(first)
            await self._carry(call, stream)
        finally:
            call.cancel()
            await channel.close()

    async def _carry(self, call: ServeCall, stream: LeaderStream) -> None:
        works = self._write(call, stream), self._watch(call, stream)
        helpers = [asyncio.ensure_future(self._run_beside(call, work)) for work in works]
        try:
            while (message := await _read(call)) is not None:
                stream.handle(message)
        finally:
            for helper in helpers:
                helper.cancel()
        self.last_error = "the leader ended the stream"

    async def _run_beside(self, call: ServeCall, work: Coroutine[object, object, None]) -> None:
        """Run a task beside the reader. An error in it cancels the call, so that no half of a stream goes on alone."""
        with self._errors.contained("group %s: the stream", self.address, then=call.cancel):
            await work

    async def _write(self, call: ServeCall, stream: LeaderStream) -> None:
        """Send what the outbox holds, in order. A failure of the call is the reader's to report."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                while stream.outbox:
                    await call.write(wire.bundle(stream.outbox))
                stream.wake.clear()
                await stream.wake.wait()

    async def _watch(self, call: ServeCall, stream: LeaderStream) -> None:
        """Cancel the call after too many silent ticks: a router that was itself stopped counts none."""
        silent = ticks = 0
        while silent < SILENT_TICKS:
            await asyncio.sleep(TICK_S)
            ticks += 1
            silent = 0 if stream.heard else silent + 1
            stream.heard = False
            if ticks % HEARTBEAT_TICKS == 0:
                stream.send_heartbeat()
        self._cancel_reason = f"nothing heard for {SILENT_TICKS * TICK_S:.0f} s"
        call.cancel()

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
        self.skew = text if isinstance(error, VersionSkew) else ""


async def _read(call: ServeCall) -> engine_pb2.FromEngine | None:
    """The next message; None: the leader ended the stream."""
    message = await call.read()
    return message if isinstance(message, engine_pb2.FromEngine) else None


def _is_cancelled() -> bool:
    """Whether this task is; else a CancelledError is that of a call which was cancelled here."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def fetch_model(stub: "engine_pb2_grpc.EngineAsyncStub", welcome: engine_pb2.Welcome) -> Model:
    """The small files of a leader's model. Raises StreamBroken when they are of another model."""
    files: dict[str, bytearray] = {}
    async for chunk in stub.Files(engine_pb2.FilesRequest()):
        if chunk.digest != welcome.digest:
            raise StreamBroken(f"Files are of model {chunk.digest}, the Welcome is of {welcome.digest}")
        files.setdefault(chunk.name, bytearray()).extend(chunk.data)
    return Model(welcome.digest, {name: bytes(data) for name, data in files.items()})
