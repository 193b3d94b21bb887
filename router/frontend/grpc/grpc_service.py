"""The public gRPC API: each call reads one message, takes the path of all requests (`frontend/request_pipeline.py`),
and sends its answer.

Messages stay bytes here: large ones, and chats, are parsed where hostile ones can be killed.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from octavo.proto.v1 import octavo_pb2
from octavo.router.answers.formatters import protobuf
from octavo.router.answers.writers.grpc_writer import IdRecorder, PendingOutputs, PendingStream
from octavo.router.frontend.grpc import grpc_calls
from octavo.router.frontend.grpc.grpc_calls import Context, StreamCut
from octavo.router.frontend.grpc.grpc_messages import read
from octavo.router.frontend.http.handlers import SLOW_CLIENT_S
from octavo.router.frontend.request_pipeline import (
    PreparedRequest,
    Services,
    answering,
    named_model,
    prepare,
    run,
    served_by,
)
from octavo.router.jobs.generation import RequestError
from octavo.router.jobs.refusals import unknown_model
from octavo.router.openai_api.grpc_fields import MessageKind, decode
from octavo.router.text.bodies import INLINE_BODY_BYTES

log = logging.getLogger(__name__)

SERVICE: str = octavo_pb2.DESCRIPTOR.services_by_name["Inference"].full_name
PREFIX = "gen-"

M = TypeVar("M", bound=Message)
Requests = AsyncIterable[bytes]
Unary = Callable[[bytes, float], Awaitable[bytes]]  # message, deadline (monotonic seconds) -> answer


class Inference:
    """Answers the calls of octavo.v1.Inference."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def handler(self) -> grpc.GenericRpcHandler:
        unary: dict[str, tuple[str, Unary]] = {
            "Generate": ("grpc_generate", self._generate),
            "Tokenize": ("grpc_tokenize", self._tokenize),
            "Detokenize": ("grpc_detokenize", self._detokenize),
            "ListModels": ("grpc_list_models", self._list_models),
            "GetModel": ("grpc_get_model", self._get_model),
        }
        methods: dict[str, Any] = {  # Any: grpc's stubs have no common type of these
            name: grpc.stream_unary_rpc_method_handler(partial(self._unary, endpoint, work))
            for name, (endpoint, work) in unary.items()
        }
        methods["GenerateStream"] = grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _unary(self, endpoint: str, work: Unary, _requests: Requests, context: Context) -> bytes:
        answer = b""

        async def answered() -> None:
            nonlocal answer
            answer = await work(await read(self._services.body_buffer, context), grpc_calls.deadline(context))

        await grpc_calls.call(self._services, endpoint, context, answered)
        return answer

    async def _stream(self, _requests: Requests, context: Context) -> None:
        async def answered() -> None:
            await self._generate_stream(await read(self._services.body_buffer, context), context)

        await grpc_calls.call(self._services, "grpc_generate_stream", context, answered)

    async def _prepare(self, body_kind: MessageKind, message: bytes, deadline: float) -> PreparedRequest:
        with self._services.body_buffer.room(len(message)):
            return await prepare(self._services, body_kind, message, deadline)

    async def _generate(self, message: bytes, deadline: float) -> bytes:
        prepared = await self._prepare("generate", message, deadline)
        del message
        return await answering(self._services, prepared, self._answer)

    async def _answer(self, prepared: PreparedRequest) -> bytes:
        id = PREFIX + prepared.id
        pending = PendingOutputs()
        with run(self._services, prepared, pending, id, sink=partial(IdRecorder, pending)) as answer:
            if (error := await answer.done) is not None:
                raise error
            response = octavo_pb2.GenerateResponse(
                id=id, model=prepared.name, outputs=pending.take(), usage=protobuf.usage(answer.usage())
            )
        return response.SerializeToString()

    async def _generate_stream(self, message: bytes, context: Context) -> None:
        prepared = await self._prepare("generate", message, grpc_calls.deadline(context))
        del message
        await answering(self._services, prepared, partial(self._stream_answer, context=context))

    async def _stream_answer(self, prepared: PreparedRequest, context: Context) -> None:
        id = PREFIX + prepared.id
        try:
            async with asyncio.timeout(None) as patience:
                slow, too_slow = partial(_hurry, patience, SLOW_CLIENT_S), partial(_hurry, patience, 0.0)
                pending = PendingStream(self._services.metrics.tally, slow, too_slow)
                with run(self._services, prepared, pending, id, sink=partial(IdRecorder, pending)):
                    await _send(pending, context, octavo_pb2.GenerateChunk(id=id, model=prepared.name))
        except TimeoutError:
            log.warning("request %s: the client does not read; call ended", id)
            raise StreamCut(_unread()) from None
        except StreamCut as cut:
            log.warning("request %s: cut: %s", id, cut)
            raise

    async def _tokenize(self, message: bytes, deadline: float) -> bytes:
        prepared = await self._prepare("tokenize", message, deadline)
        (prompt,) = prepared.encoded.prompts
        return octavo_pb2.TokenizeResponse(
            token_ids=memoryview(prompt).cast("I"), context_length=prepared.loaded.model.context_length
        ).SerializeToString()

    async def _detokenize(self, message: bytes, deadline: float) -> bytes:
        loop = asyncio.get_running_loop()
        with self._services.body_buffer.room(len(message)):
            loaded = await self._services.model_loader.current(min(loop.time() + self._services.max_wait_s, deadline))
            read = await loaded.detokenise(message)
            if (named := named_model(self._services, loaded, read.model)) is not None:
                loaded, read = named, await named.detokenise(message)
        served_by(self._services, loaded, read.model)
        return octavo_pb2.DetokenizeResponse(text=read.text).SerializeToString()

    async def _list_models(self, message: bytes, deadline: float) -> bytes:
        _little(octavo_pb2.ListModelsRequest, message)
        return octavo_pb2.ListModelsResponse(models=self._models()).SerializeToString()

    async def _get_model(self, message: bytes, deadline: float) -> bytes:
        asked = _little(octavo_pb2.GetModelRequest, message).model
        for model in self._models():
            if model.id == asked:
                return model.SerializeToString()
        raise unknown_model(asked, tuple(self._services.cards))

    def _models(self) -> list[octavo_pb2.Model]:
        return [octavo_pb2.Model(id=name, context_length=length) for name, length in self._services.cards.items()]


def _little(kind: type[M], message: bytes) -> M:
    """A message that is parsed here. Raises RequestError 400, 413 when it is longer than any that makes sense."""
    if len(message) > INLINE_BODY_BYTES:
        what = f"a {kind.DESCRIPTOR.name} may have {INLINE_BODY_BYTES} bytes"
        raise RequestError(413, "invalid_request_error", "body_too_large", what)
    return decode(kind, message)


async def _send(pending: PendingStream, context: Context, chunk: octavo_pb2.GenerateChunk) -> None:
    """Until the last message is written. Raises RequestError while none is, else StreamCut. chunk: how the first
    begins."""
    begun = False
    while True:
        await pending.news()
        if pending.error is not None and not begun:
            raise pending.error
        chunk.outputs.extend(pending.take())
        usage = pending.usage if pending.is_empty else None
        if usage is not None:
            chunk.usage.CopyFrom(protobuf.usage(usage))
        if chunk.outputs or usage is not None:
            begun = True
            await context.write(chunk.SerializeToString())
        if usage is not None:
            return
        if pending.error is not None and pending.is_empty:
            raise StreamCut(pending.error)
        chunk = octavo_pb2.GenerateChunk()


def _hurry(patience: asyncio.Timeout, seconds: float) -> None:
    """The client has this long to read on."""
    if not patience.expired():
        patience.reschedule(asyncio.get_running_loop().time() + seconds)


def _unread() -> RequestError:
    return RequestError(
        429, "rate_limit_error", "client_too_slow", "the answer was not read; what was left of it is dropped"
    )
