"""serve's side of the engine: which stream asked for which request, and what the core answers.

Everything here runs on one event loop and never waits; what speaks gRPC is in engine_service.py.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from itertools import count

from octavo.proto.v1 import engine_pb2
from octavo.worker.config import Config
from octavo.worker.ipc.process_context import Shared
from octavo.worker.leader.admission.credit import CreditLedger
from octavo.worker.leader.admission.submit import Rules, read_submit
from octavo.worker.leader.core_channel import CoreChannel
from octavo.worker.leader.router_stream import RouterStream
from octavo.worker.messages import rank_info
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.memory import MemoryState, Sleep, Wake
from octavo.worker.messages.output import Cancel, Load, Outputs, RefusedRequest
from octavo.worker.messages.rank_info import RankCapabilities
from octavo.worker.messages.request import Invalid

_CREDIT_S = 1.0  # every stream hears its credit at least so often

logger = logging.getLogger(__name__)

Rejected = engine_pb2.Rejected
_NO_LOAD = Load(prompt_tokens=0, running=0, waiting=0, free_blocks=0, total_blocks=0)


class RequestRegistry:
    """The requests of all streams."""

    def __init__(self, config: Config, shared: Shared, eos_ids: Iterable[int]) -> None:
        self._config = config
        self._eos_ids = frozenset(eos_ids)
        self._core = CoreChannel(shared, self._receive, self._received)
        self._owners: dict[int, RouterStream] = {}  # by key
        self._keys = count(1)
        self._streams: set[RouterStream] = set()
        self._woken: set[RouterStream] = set()
        self._ledger: CreditLedger | None = None
        self._load = _NO_LOAD
        self._credit_sent_s = 0.0
        self.rules: Rules | None = None
        self.weights = 0  # what the ranks add to the model's digest
        self.ready = asyncio.Event()  # the rank has said hello
        self.draining = False
        self.asleep = False  # or about to be: the core has the order
        self._ordered: asyncio.Future[MemoryState] | None = None

    def start(self) -> None:
        """Begin to read what the core says."""
        self._core.start()

    @property
    def broken(self) -> asyncio.Future[None]:
        """Fails when what the core says cannot be dealt with."""
        return self._core.broken

    @property
    def under_way(self) -> int:
        """Requests that the core has."""
        return len(self._owners)

    @property
    def busy(self) -> bool:
        """Whether a request is under way, or output waits to be written."""
        return bool(self._owners) or any(not stream.out.empty for stream in self._streams)

    def open(self, stream: RouterStream) -> None:
        self._streams.add(stream)
        self._open_ledger.join(stream)
        stream.out.draining = self.draining

    def close(self, stream: RouterStream) -> None:
        """The stream is gone, and its requests with it."""
        self._streams.discard(stream)
        for key in list(stream.numbers):
            self._abandon(stream, key)
        self._open_ledger.leave(stream)

    @property
    def _open_ledger(self) -> CreditLedger:
        assert self._ledger is not None, "no stream opens before the rank has said hello"
        return self._ledger

    def credit(self, stream: RouterStream) -> engine_pb2.Credit:
        """The newest credit; the caller is about to send it."""
        load, granted = self._load, self._open_ledger.grant(self._load)[stream]
        stream.sent_tokens = granted.tokens
        return engine_pb2.Credit(
            seen=granted.seen,
            tokens=granted.tokens,
            load=engine_pb2.Load(
                prompt_tokens=load.prompt_tokens,
                running=load.running,
                total_blocks=load.total_blocks,
                asleep=self.asleep,
            ),
        )

    async def take(self, stream: RouterStream, message: engine_pb2.FromRouter) -> None:
        """Act on one message of a router; waits only while the core's inbox is full. Raises ValueError on nonsense."""
        stream.heard_s = time.monotonic()
        kind = message.WhichOneof("kind")
        if kind == "submit":
            await self._core.room()
            self._submit(stream, message.submit)
        elif kind == "cancel":
            key = stream.keys.get(message.cancel.number)
            if key is not None:
                self._abandon(stream, key)
        elif kind == "hello":
            raise ValueError("a second Hello on one stream")

    def _submit(self, stream: RouterStream, submit: engine_pb2.Submit) -> None:
        if submit.number <= stream.newest:
            raise ValueError(f"submit {submit.number} after {stream.newest}: numbers must rise")
        stream.newest = submit.number
        stream.out.credit = True
        if self.draining:
            self._reject(stream, submit.number, Rejected.UNAVAILABLE, Invalid("", "this group drains; try another"))
            return
        if self.asleep:
            self._reject(stream, submit.number, Rejected.UNAVAILABLE, Invalid("", "this group is asleep; try another"))
            return
        assert self.rules is not None
        key = next(self._keys)
        try:
            new = read_submit(submit, key, self.rules)
            record = encode(new)
            if len(record) > self._core.largest:
                raise Invalid("prompt", f"{len(new.prompt)} tokens are more than this group takes at once")
        except Invalid as error:
            self._reject(stream, submit.number, Rejected.INVALID, error)
            return
        self._owners[key] = stream
        stream.begin(submit.number, key)
        self._open_ledger.on_submit(stream, submit.number, len(new.prompt) + len(new.generated))
        self._core.send(record)
        stream.wake.set()

    def _reject(
        self, stream: RouterStream, number: int, code: "engine_pb2.Rejected.Code.ValueType", why: Invalid
    ) -> None:
        """Refuse a submit that the core never sees."""
        self._open_ledger.on_refused(stream, number)
        stream.reject(number, code, why.field, why.message)

    def _abandon(self, stream: RouterStream, key: int) -> None:
        self._open_ledger.on_begun(stream, stream.numbers[key])
        stream.forget(key)
        del self._owners[key]
        self._core.send(encode(Cancel(key)))

    def _receive(self, record: bytes) -> None:
        if (said := rank_info.load(record)) is not None:
            self._greet(said)
            return
        message = decode(record)
        if isinstance(message, Outputs):
            self._deliver(message)
        elif isinstance(message, Load):
            self._load = message
        elif isinstance(message, RefusedRequest):
            self._refuse(message)
        elif isinstance(message, MemoryState) and self._ordered is not None:
            self._ordered.set_result(message)

    def _greet(self, said: RankCapabilities) -> None:
        self.rules = Rules(
            said.vocabulary, said.context_length, said.block_size, self._eos_ids, self._config.prefix_caching,
            frozenset(said.features),
        )  # fmt: skip
        self.weights = int(said.weights, 16)
        self._ledger = CreditLedger(rank_info.limits(said, self._config))
        self.ready.set()

    def _deliver(self, outputs: Outputs) -> None:
        by_stream: dict[RouterStream, tuple[list[int], list[int]]] = {}
        for key, token in zip(outputs.keys, outputs.ids, strict=True):
            if (stream := self._owners.get(key)) is not None:
                keys, ids = by_stream.setdefault(stream, ([], []))
                keys.append(key)
                ids.append(token)
        for stream, (keys, ids) in by_stream.items():
            stream.deliver_tokens(keys, ids)
        self._woken.update(by_stream)
        for output in outputs.others:
            stream = self._owners.get(output.key)
            if stream is None:
                continue  # given up while the step was under way
            self._open_ledger.on_begun(stream, stream.numbers[output.key])
            if stream.deliver(output):
                del self._owners[output.key]
            self._woken.add(stream)

    def _refuse(self, refused: RefusedRequest) -> None:
        stream = self._owners.pop(refused.key, None)
        if stream is not None:
            number = stream.numbers[refused.key]
            stream.forget(refused.key)
            self._open_ledger.on_begun(stream, number)
            stream.reject(number, Rejected.INVALID, refused.field, refused.message)

    def _received(self) -> None:
        """After a burst of records: one wake-up a stream, and new credit for routers that had none left."""
        if self._ledger is not None:
            for router, granted in self._ledger.grant(self._load).items():
                if isinstance(router, RouterStream) and router.sent_tokens <= 0 < granted.tokens:
                    router.out.credit = True
                    self._woken.add(router)
        for stream in self._woken:
            stream.wake.set()
        self._woken.clear()

    def _offer_credit(self) -> None:
        for stream in self._streams:
            stream.out.credit = True
        self._woken |= self._streams

    def offer_credit_when_due(self) -> None:
        """Call it often: each stream hears its credit once a second at least."""
        now = time.monotonic()
        if now - self._credit_sent_s >= _CREDIT_S:
            self._credit_sent_s = now
            self._offer_credit()
            self._received()

    def close_to_requests(self, closed: bool) -> None:
        """Grant no credit any more, or grant it again; every stream hears of it at once."""
        self._open_ledger.closed = closed
        self._offer_credit()
        self._received()

    async def order(self, order: Sleep | Wake) -> MemoryState:
        """Have the ranks give their memory back, or have it again: what has become of it. One at a time."""
        assert self._ordered is None
        self._ordered = asyncio.get_running_loop().create_future()
        try:
            self._core.send(encode(order))
            return await self._ordered
        finally:
            self._ordered = None

    def drain(self) -> None:
        """Take nothing new and say so."""
        self.draining = True
        for stream in self._streams:
            stream.out.draining = True
            stream.wake.set()

    async def close_streams(self, limit_s: float) -> None:
        """End every stream once it has written what it owes."""
        until = time.monotonic() + limit_s
        for stream in self._streams:
            stream.close()
        while self._streams and time.monotonic() < until:
            await asyncio.sleep(0.02)
