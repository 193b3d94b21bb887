"""A generated client of the public gRPC API, and the messages that ask what a JSON body asks."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from octavo.proto.v1 import octavo_pb2, octavo_pb2_grpc

Json = dict[str, Any]  # Any: JSON
Refusal = tuple[grpc.StatusCode, str | None, str | None]  # status, code, field

# As docs/api.md advises.
OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


@asynccontextmanager
async def calling(address: str, *options: tuple[str, int]) -> AsyncIterator["octavo_pb2_grpc.InferenceAsyncStub"]:
    async with grpc.aio.insecure_channel(address, options=(*OPTIONS, *options)) as channel:
        yield octavo_pb2_grpc.InferenceStub(channel)


def message_of(body: Json) -> octavo_pb2.GenerateRequest:
    """The request of this JSON body, as far as a message can say it. Raises TypeError or ValueError where it cannot."""
    rest = dict(body)
    request = octavo_pb2.GenerateRequest(
        prompt=_prompts(rest.pop("prompt")) if rest.get("prompt") is not None else [],
        messages=[octavo_pb2.Message(**message) for message in rest.pop("messages", None) or []],
    )
    for name in octavo_pb2.SamplingParameters.DESCRIPTOR.fields_by_name:
        if (value := rest.pop(name, None)) is None:
            continue
        if name == "logit_bias":
            request.sampling.logit_bias.update({int(id): bias for id, bias in value.items()})
        elif isinstance(value, list):
            getattr(request.sampling, name).extend(value)
        else:
            setattr(request.sampling, name, value)
    stop = rest.pop("stop", None)
    request.stop.extend([stop] if isinstance(stop, str) else stop or [])
    request.stop_token_ids.extend(rest.pop("stop_token_ids", None) or [])
    for name, value in rest.items():
        if value is not None:
            setattr(request, name, value)
    return request


def _prompts(prompt: Any) -> list[octavo_pb2.Prompt]:
    if isinstance(prompt, str):
        return [octavo_pb2.Prompt(text=prompt)]
    if all(isinstance(item, int) for item in prompt):
        return [octavo_pb2.Prompt(token_ids=octavo_pb2.TokenIds(ids=prompt))]
    return [part for item in prompt for part in _prompts(item)]


async def refused(call: Awaitable[object]) -> Refusal:
    """How a call ended that had to fail."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return refusal(error)
    raise AssertionError(f"it was answered: {answer}")


def refusal(error: grpc.aio.AioRpcError) -> Refusal:
    found = trailers(error)
    return error.code(), found.get("octavo-error-code"), found.get("octavo-error-field")


def trailers(error: grpc.aio.AioRpcError) -> dict[str, str]:
    return {key: str(value) for key, value in error.trailing_metadata() or ()}


async def streamed(
    stub: "octavo_pb2_grpc.InferenceAsyncStub", request: octavo_pb2.GenerateRequest, **options: Any
) -> list[octavo_pb2.GenerateChunk]:
    """All chunks of a stream that ends well."""
    return [chunk async for chunk in stub.GenerateStream(request, **options)]


def joined(chunks: list[octavo_pb2.GenerateChunk]) -> octavo_pb2.GenerateResponse:
    """What Generate would have answered."""
    whole = octavo_pb2.GenerateResponse(id=chunks[0].id, model=chunks[0].model, usage=chunks[-1].usage)
    outputs: dict[int, octavo_pb2.Output] = {}
    for chunk in chunks:
        for piece in chunk.outputs:
            output = outputs.setdefault(piece.index, octavo_pb2.Output(index=piece.index))
            assert not output.finish_reason, "nothing follows a finish reason"
            output.text += piece.text
            output.token_ids.extend(piece.token_ids)
            output.finish_reason = piece.finish_reason
    whole.outputs.extend(outputs[index] for index in sorted(outputs))
    return whole
