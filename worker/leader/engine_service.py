"""Engine.Serve and Engine.Files: gRPC around the RequestRegistry."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import grpc
import grpc.aio

from octavo import __version__, release
from octavo.proto.v1 import engine_pb2, engine_pb2_grpc
from octavo.worker.channel import first
from octavo.worker.config import Config
from octavo.worker.leader.request_registry import RequestRegistry
from octavo.worker.leader.router_stream import RouterStream
from octavo.worker.models.folder.checkpoint import digest_of
from octavo.worker.models.folder.text_files import SERVED_FILES
from octavo.worker.tls import Roles

_CHECK_S = 0.5
_CHUNK_BYTES = 1 << 20
_REMEMBERED = 1000  # refused routers: their names change with their pods
_ServeContext: TypeAlias = "grpc.aio.ServicerContext[engine_pb2.FromRouter, engine_pb2.FromEngine]"
_FilesContext: TypeAlias = "grpc.aio.ServicerContext[engine_pb2.FilesRequest, engine_pb2.FileChunk]"

logger = logging.getLogger(__name__)


class EngineServicer(engine_pb2_grpc.EngineServicer):
    """incarnation: of the group, for the Welcome. model: its folder and outline."""

    def __init__(
        self, registry: RequestRegistry, config: Config, roles: Roles, incarnation: str, model: tuple[Path, str]
    ) -> None:
        self._registry = registry
        self._config = config
        self._roles = roles
        self._incarnation = incarnation
        self._folder, self._outline = model
        self._far: set[tuple[str, str]] = set()  # routers that were refused, and their releases: they try for ever

    async def Serve(  # type: ignore[override]  # the generated base knows generators only; this one writes itself
        self, request_iterator: AsyncIterator[engine_pb2.FromRouter], context: _ServeContext
    ) -> None:
        await self._roles.require("router", context)
        name = await self._greet(await first(request_iterator), context)
        stream = RouterStream(name)
        await self._registry.ready.wait()
        self._registry.open(stream)
        try:
            await context.write(self._welcome(stream))
            reason = await self._carry(stream, request_iterator, context)
        finally:
            self._registry.close(stream)
        if reason is not None:
            code, text = reason
            logger.warning("router %s is cut off: %s", name, text)
            await context.abort(code, text)

    async def Files(
        self, request: engine_pb2.FilesRequest, context: _FilesContext
    ) -> AsyncIterator[engine_pb2.FileChunk]:
        await self._roles.require("router", context)
        await self._registry.ready.wait()
        for name in SERVED_FILES:
            path = self._folder / name
            if not path.is_file():
                continue
            data = await asyncio.to_thread(path.read_bytes)
            for start in range(0, max(1, len(data)), _CHUNK_BYTES):
                chunk = data[start : start + _CHUNK_BYTES]
                yield engine_pb2.FileChunk(name=name, data=chunk, digest=self._digest)

    @property
    def _digest(self) -> str:
        """Known once the registry is ready."""
        return digest_of(self._outline, self._registry.weights)

    async def _greet(self, said: engine_pb2.FromRouter | None, context: _ServeContext) -> str:
        """The router's name. Aborts the call when it is not of this service, or of a release too far from this one."""
        if said is None or said.WhichOneof("kind") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of Serve is its Hello")
        assert said is not None  # abort does not return
        theirs, ours = said.hello.service_uid, self._config.service_uid
        if theirs != ours:
            text = f"this group belongs to service {ours!r}, and the router to {theirs!r}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        if skew := release.skew(f"router {said.hello.router}", said.hello.release, said.hello.protocol, "this group"):
            self._warn_once(said.hello, skew)
            await context.write(
                engine_pb2.FromEngine(welcome=engine_pb2.Welcome(protocol=release.PROTOCOL, release=__version__))
            )
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, skew)
        return said.hello.router

    def _warn_once(self, hello: engine_pb2.Hello, skew: str) -> None:
        refused = (hello.router, hello.release)
        if refused in self._far:
            return
        if len(self._far) >= _REMEMBERED:
            self._far.clear()
        self._far.add(refused)
        logger.warning("%s", skew)

    def _welcome(self, stream: RouterStream) -> engine_pb2.FromEngine:
        rules = self._registry.rules
        assert rules is not None
        return engine_pb2.FromEngine(
            welcome=engine_pb2.Welcome(
                incarnation=self._incarnation, digest=self._digest, served_name=self._config.served_name,
                context_length=rules.context_length, block_size=rules.block_size, revision=self._config.revision,
                features=sorted(rules.features), protocol=release.PROTOCOL, release=__version__,
            ),
            credit=self._registry.credit(stream),
        )  # fmt: skip

    async def _carry(
        self, stream: RouterStream, messages: AsyncIterator[engine_pb2.FromRouter], context: _ServeContext
    ) -> tuple[grpc.StatusCode, str] | None:
        """Until either end is done; a code and text when this router must be cut off."""
        reading = asyncio.create_task(self._read(stream, messages))
        writing = asyncio.create_task(stream.write_all(context.write, lambda: self._registry.credit(stream)))
        try:
            while not (reading.done() or writing.done()):
                await asyncio.wait({reading, writing}, timeout=_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
                if (overrun := stream.overrun(time.monotonic())) is not None:
                    return grpc.StatusCode.RESOURCE_EXHAUSTED, overrun
            if reading.done() and (error := reading.exception()) is not None:
                if isinstance(error, ValueError):
                    return grpc.StatusCode.INVALID_ARGUMENT, str(error)
                logger.error("router %s: its stream failed", stream.router, exc_info=error)
                return grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
            return None
        finally:
            reading.cancel()
            writing.cancel()
            await asyncio.wait({reading, writing}, timeout=1.0)

    async def _read(self, stream: RouterStream, messages: AsyncIterator[engine_pb2.FromRouter]) -> None:
        async for message in messages:
            await self._registry.take(stream, message)
            for further in message.more:
                await self._registry.take(stream, further)
