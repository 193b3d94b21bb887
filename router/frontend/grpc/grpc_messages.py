"""The one message of a gRPC call, read within bounds of time and memory.

Every method is a client-streaming one on this end, which is the same on the wire: so a message that never comes whole
has a time limit. What has come of it is gRPC's own and not to be seen: one that takes its time counts as the largest
that there may be.
"""

import asyncio

import grpc

from octavo.router.frontend.body_buffer import BODY_S, MAX_BODY_BYTES, BodyBuffer
from octavo.router.jobs.generation import RequestError

AT_ONCE_S = 1.0  # nearly all messages have come by then

Context = grpc.aio.ServicerContext[bytes, bytes]


async def read(body_buffer: BodyBuffer, context: Context) -> bytes:
    """Raises RequestError 408 when it stalls, 429 when too many come slowly, 400 when there is none."""
    slow = _Slow(body_buffer)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(BODY_S) as patience:
            timer = loop.call_later(AT_ONCE_S, slow.count, patience)
            message = await context.read()
    except TimeoutError:
        what = f"the message did not come whole within {BODY_S:.0f} s; send it faster"
        error = slow.refused or RequestError(408, "invalid_request_error", "body_too_slow", what)
        raise error from None
    finally:
        timer.cancel()
        slow.over()
    if not isinstance(message, bytes):
        raise RequestError(400, "invalid_request_error", "invalid_message", "the call has no message")
    return message


class _Slow:
    """A message that has not come at once. refused: why it is waited for no longer."""

    def __init__(self, body_buffer: BodyBuffer) -> None:
        self.refused: RequestError | None = None
        self._buffer = body_buffer
        self._counted = 0

    def count(self, patience: asyncio.Timeout) -> None:
        try:
            self._buffer.take(MAX_BODY_BYTES, whole=False)
            self._counted = MAX_BODY_BYTES
        except RequestError as error:
            self.refused = error
            patience.reschedule(0.0)

    def over(self) -> None:
        self._buffer.bytes -= self._counted
