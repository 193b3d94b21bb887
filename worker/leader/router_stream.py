"""One Serve stream on the leader's side: the router's numbers, the engine's keys, and what waits to be written.

Requests, numbers and credit die with the stream. The engine never waits for a writer: a reader that falls behind by
4 MiB, or for which one write takes 10 s, is cut.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from octavo.proto.v1 import engine_pb2
from octavo.worker.leader.output_buffer import OutputBuffer
from octavo.worker.messages.output import Output
from octavo.worker.messages.request import Finish

BOUND_BYTES = 4 << 20
BOUND_S = 10.0

FromEngine = engine_pb2.FromEngine


class RouterStream:
    """number: the router's name of a request; key: the engine's."""

    def __init__(self, router: str) -> None:
        self.router = router
        self.newest = 0  # number of the newest submit
        self.heard_s = time.monotonic()
        self.numbers: dict[int, int] = {}  # by key
        self.keys: dict[int, int] = {}  # by number
        self.out = OutputBuffer()
        self.sent_tokens = 0  # credit in the newest message
        self.closing = False
        self.wake = asyncio.Event()
        self._write_began_s: float | None = None

    def begin(self, number: int, key: int) -> None:
        self.numbers[key] = number
        self.keys[number] = key

    def forget(self, key: int) -> None:
        self.keys.pop(self.numbers.pop(key, -1), None)

    def deliver_tokens(self, keys: Iterable[int], ids: Sequence[int]) -> None:
        """Add one token of each of these requests, all of which go on."""
        self.out.add_tokens(map(self.numbers.__getitem__, keys), ids)

    def deliver(self, output: Output) -> bool:
        """Add the rows of one request; whether it ended by them."""
        self.out.add(self.numbers[output.key], output)
        if output.finish is Finish.NOT_FINISHED:
            return False
        self.forget(output.key)
        return True

    def reject(self, number: int, code: "engine_pb2.Rejected.Code.ValueType", field: str, message: str) -> None:
        self.out.reject(engine_pb2.Rejected(number=number, code=code, field=field, message=message))
        self.wake.set()

    def close(self) -> None:
        """End the stream once everything is written."""
        self.closing = True
        self.wake.set()

    def overrun(self, now_s: float) -> str | None:
        """Why this reader must be cut; None while it keeps up."""
        if self.out.size_bytes > BOUND_BYTES:
            return f"{self.out.size_bytes} bytes of output wait to be read"
        if self._write_began_s is not None and now_s - self._write_began_s > BOUND_S:
            return f"nothing was read for {BOUND_S:.0f} s"
        if now_s - self.heard_s > BOUND_S:
            return f"nothing was heard for {BOUND_S:.0f} s"
        return None

    async def write_all(
        self, write: Callable[[FromEngine], Awaitable[None]], credit: Callable[[], engine_pb2.Credit]
    ) -> None:
        """Write what comes, one message at a time, until the stream closes."""
        while True:
            message = None if self.out.empty else self.out.take(credit())
            if message is None:
                if self.closing:
                    return
                self.wake.clear()
                await self.wake.wait()
                continue
            self._write_began_s = time.monotonic()
            await write(message)
            self._write_began_s = None
