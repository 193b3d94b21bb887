"""The end of a link that listens: one stream in one incarnation, from the rank before, its messages checked one by one.
Steps begin with 1; messages of step 0 come before them, as many as ranks have to agree on something.

a peer --role, introduction--> admitted --messages--> ended, whatever the cause: the link is lost
     \\--> refused, or silent for too long: the link goes on waiting for the right one
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, Timer
from typing import NoReturn

import grpc

from octavo.proto.v1 import group_pb2
from octavo.worker import channel
from octavo.worker.addresses import rank_address
from octavo.worker.config import Config
from octavo.worker.distributed.pipeline import wire
from octavo.worker.distributed.pipeline.bounded_queue import BoundedQueue
from octavo.worker.distributed.pipeline.wire import Received
from octavo.worker.errors import PeerLost, WorkerError
from octavo.worker.tls import Roles, bind
from octavo.worker.topology import RankPosition

ADMITTED = ("admitted", "yes")  # initial metadata of the answer
_OPTIONS = (
    ("grpc.max_receive_message_length", wire.LARGEST),
    ("grpc.so_reuseport", 0),  # a second rank on the same port is an error
)
_STREAMS = 8  # at a time: the one that counts, and some to be refused

logger = logging.getLogger(__name__)


class PeerRefused(WorkerError):
    """A peer's message is not accepted; its stream ends with `code`."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class LinkReceiver:
    """Messages go into `queue`, which opens when the rank before was admitted.

    late: streams and messages of other incarnations that were refused.
    """

    def __init__(
        self,
        config: Config,
        position: RankPosition,
        incarnation: str,
        queue: BoundedQueue[Received],
        lost: Callable[[str], None],
    ) -> None:
        """Listens from now on. lost: called when the stream that was admitted has ended. Raises ConfigError."""
        self.late = 0
        self._roles, self._uid, self._incarnation = Roles(config), config.service_uid, incarnation
        self._speaker = (position.rank - position.layout.tensor) % position.layout.ranks
        self._kind = "sampled" if position.first else "hidden"
        self._queue, self._lost = queue, lost
        self._admitting, self._taken = Lock(), False
        self._step = -1
        self._server = grpc.server(ThreadPoolExecutor(_STREAMS, "link-receiver"), options=_OPTIONS)
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(self._activations)
        handlers = grpc.method_handlers_generic_handler(wire.SERVICE, {"Activations": handler})
        self._server.add_generic_rpc_handlers((handlers,))
        bind(self._server, "--group", rank_address(config.group, position.rank % position.layout.per_pod), config)
        self._server.start()

    def _activations(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        try:
            self._admit(messages, context)
        except PeerRefused as refused:
            _turn_away(context, refused)
        why = "its stream has ended"
        try:
            context.send_initial_metadata((ADMITTED,))
            self._queue.open()
            for message in messages:
                self._queue.put(self._received(message))
        except PeerRefused as refused:
            why = str(refused)
            _turn_away(context, refused)
        except PeerLost as error:  # of the other link
            why = str(error)
        finally:
            self._lost(f"rank {self._speaker}: {why}")
        return b""  # an ActivationsEnd

    def _admit(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> None:
        if refusal := self._roles.refusal("worker", context):
            raise PeerRefused(grpc.StatusCode.PERMISSION_DENIED, refusal)
        said, _ = self._decode(_first(messages, context))
        if said.WhichOneof("kind") != "introduction":
            raise PeerRefused(grpc.StatusCode.INVALID_ARGUMENT, "the first message of Activations is its introduction")
        introduction = said.introduction
        if (introduction.service_uid, introduction.rank) != (self._uid, self._speaker):
            expected = f"rank {self._speaker} of service {self._uid!r}"
            raise PeerRefused(
                grpc.StatusCode.PERMISSION_DENIED,
                f"rank {introduction.rank} of service {introduction.service_uid!r} speaks where {expected} is expected",
            )
        with self._admitting:
            if self._taken:
                raise PeerRefused(
                    grpc.StatusCode.ALREADY_EXISTS,
                    f"rank {introduction.rank} has come already; an incarnation has one stream",
                )
            self._taken = True

    def _received(self, message: bytes) -> Received:
        activation, data = self._decode(message)
        kind = activation.WhichOneof("kind")
        if kind != self._kind:
            raise PeerRefused(grpc.StatusCode.INVALID_ARGUMENT, f"{kind} came where {self._kind} is expected")
        if activation.step <= self._step and (activation.step or self._step > 0):
            raise PeerRefused(
                grpc.StatusCode.INVALID_ARGUMENT, f"step {activation.step} came after step {self._step}; they rise"
            )
        self._step = activation.step
        try:
            return wire.received(activation, data)
        except ValueError as error:
            raise PeerRefused(grpc.StatusCode.INVALID_ARGUMENT, f"step {activation.step}: {error}") from error

    def _decode(self, message: bytes) -> tuple[group_pb2.Activation, memoryview]:
        try:
            activation, data = wire.decode(message)
        except ValueError as error:
            raise PeerRefused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        if activation.incarnation != self._incarnation:
            self.late += 1
            raise PeerRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this is incarnation {self._incarnation}, and the message is of {activation.incarnation!r}",
            )
        return activation, data


def _first(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
    """The message that opens a stream. A peer that does not send it in time is cut off: threads are few."""
    limit = Timer(channel.FIRST_S, context.cancel)
    limit.start()
    try:
        message = next(messages, None)
    except grpc.RpcError:  # the call is over
        message = None
    limit.cancel()
    if message is None:
        raise PeerRefused(grpc.StatusCode.CANCELLED, "it did not introduce itself in time, or left before")
    return message


def _turn_away(context: grpc.ServicerContext, refused: PeerRefused) -> NoReturn:
    logger.warning("a peer of this stage was refused: %s", refused)
    context.abort(refused.code, str(refused))
    raise refused  # abort does not return
