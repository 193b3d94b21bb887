"""The links of one rank: a listener for the rank before, a stream to the next. See worker/distributed/links.py.

    rank before --> receiver --received--> this rank's thread --sending--> sender --> next rank

When one is lost so are both: the incarnation is over, and no call may go on waiting for the other.
"""

import torch

from octavo.proto.v1 import group_pb2
from octavo.worker.addresses import rank_address
from octavo.worker.config import Config
from octavo.worker.distributed.links import Sampled
from octavo.worker.distributed.pipeline import wire
from octavo.worker.distributed.pipeline.bounded_queue import BoundedQueue
from octavo.worker.distributed.pipeline.receiver import LinkReceiver
from octavo.worker.distributed.pipeline.sender import LinkSender
from octavo.worker.distributed.pipeline.wire import Hidden, Received
from octavo.worker.topology import RankPosition

_ROOM = 4  # messages at either end: more than a peer that keeps pace leaves waiting, and a bound to memory


class GrpcLinks:
    """Links of a group with several stages, for one incarnation. Every call raises PeerLost when a link was lost."""

    transport = group_pb2.GRPC

    def __init__(self, config: Config, position: RankPosition, incarnation: str) -> None:
        """Listens and dials from now on, and does not wait. Raises ConfigError when it cannot listen."""
        self._incarnation = incarnation
        self._received: BoundedQueue[Received] = BoundedQueue(_ROOM)
        self._sending: BoundedQueue[bytes] = BoundedQueue(_ROOM)
        self._receiver = LinkReceiver(config, position, incarnation, self._received, self._lost)
        pod, local = divmod(position.next, position.layout.per_pod)
        introduction = wire.encode_introduction(incarnation, config.service_uid, position.rank)
        LinkSender(rank_address(config.peers[pod], local), config, introduction, self._sending, self._lost)

    @property
    def late(self) -> int:
        """Streams and messages of other incarnations that were refused."""
        return self._receiver.late

    def connect(self) -> None:
        """Wait until both neighbours are linked, however long they take to load."""
        self._received.opened()
        self._sending.opened()

    def send_hidden(self, step: int, hidden: torch.Tensor) -> None:
        self._sending.put(wire.encode_hidden(self._incarnation, step, hidden))

    def receive_hidden(self, step: int) -> torch.Tensor:
        """Its memory is the caller's own."""
        received = self._received.get()
        assert isinstance(received, Hidden), "the first stage receives what was sampled"
        if received.number != step:
            raise ValueError(f"the stage before sent step {received.number} where step {step} is expected")
        return received.tensor

    def send_sampled(self, sampled: Sampled) -> None:
        self._sending.put(wire.encode_sampled(self._incarnation, sampled))

    def receive_sampled(self) -> Sampled:
        received = self._received.get()
        assert isinstance(received, Sampled), "only the first stage receives what was sampled"
        return received

    def _lost(self, why: str) -> None:
        self._received.break_(why)
        self._sending.break_(why)
