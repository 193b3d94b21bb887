"""What passes between the GPUs of a pipeline's stages, in the order of the steps; see worker/distributed/links.py.

    MailboxLinks   into the next GPU's memory, by kernels of both streams: no host waits or is asked
    HostLinks      by way of pinned memory and the hosts' links; a thread waits for the device, and then sends

A mailbox is taken where both ends reach it. The ranks of a column, the same part of each stage, find that out together.
"""

import logging
from array import array
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple, Protocol

import numpy as np
import torch

from octavo.kernels.cuda.collectives import mailbox
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import StepBuffers
from octavo.proto.v1 import group_pb2
from octavo.worker.distributed.links import Links, Sampled
from octavo.worker.runner.cuda.buffers import upload_words
from octavo.worker.runner.cuda.shared import Unshared, share
from octavo.worker.runner.pending_tokens import StepTokens, checked, most_pending
from octavo.worker.topology import RankPosition

logger = logging.getLogger(__name__)


class DeviceLinks(Protocol):
    """Calls are made in the order of the steps, and work in the order of the current stream. transport: how."""

    transport: "group_pb2.Transport.ValueType"

    def send_hidden(self, step: int, hidden: torch.Tensor) -> None:
        """hidden: [tokens, hidden size], contiguous; it may be overwritten by what is launched later."""

    def receive_hidden(self, step: int, into: torch.Tensor) -> None:
        """into: [tokens, hidden size]."""

    def send_sampled(self, step: int, buffers: StepBuffers, ids: torch.Tensor, count: int) -> None:
        """The first `count` of ids, int32."""

    def take_sampled(self, pending: StepTokens, state: DeviceState) -> None:
        """They go into the token pool."""


class Sizes(NamedTuple):
    """Of the largest step."""

    rows: int
    hidden_bytes: int

    def boxes(self, position: RankPosition) -> mailbox.Boxes:
        """Of what comes to this rank. Ids are taken late: all that are not taken have a box, and one more."""
        if position.first:
            return mailbox.Boxes(mailbox.ids_bytes(self.rows), 1 << most_pending(position.layout).bit_length())
        return mailbox.Boxes(-(-self.hidden_bytes // 16) * 16, 2)


def on_device(links: Links, position: RankPosition, sizes: Sizes) -> DeviceLinks:
    """links: of the hosts, by which the ranks agree."""
    pipeline, tensor = position.layout.pipeline, position.layout.tensor
    try:
        size = mailbox.region_bytes(sizes.boxes(position))
        regions = share(size, position.stage, lambda said: around(links, position, said))
    except Unshared as error:
        logger.warning("stages pass on by way of their hosts: %s", error)
        return HostLinks(links)
    own, following, before = (regions[(position.stage + apart) % pipeline] for apart in (0, 1, -1))
    towards = RankPosition(position.layout, (position.rank + tensor) % position.layout.ranks)
    return MailboxLinks(
        mailbox.Inbox(own, before, sizes.boxes(position)), mailbox.Outbox(own, following, sizes.boxes(towards))
    )


def around(links: Links, position: RankPosition, said: bytes) -> list[bytes]:
    """What every stage's rank of this column said, by stage; all call it, before any step."""
    stages = position.layout.pipeline
    heard = {position.stage: said}
    for apart in range(1, stages):
        passed = heard[(position.stage - apart + 1) % stages]
        words = array("I", passed.ljust(-(-len(passed) // 4) * 4, b"\0"))
        if position.last:
            links.send_sampled(Sampled(0, tuple(words)))
        else:
            links.send_hidden(0, torch.frombuffer(bytearray(words.tobytes()), dtype=torch.float32))
        if position.first:
            came = array("I", links.receive_sampled().ids).tobytes()
        else:
            came = links.receive_hidden(0).view(torch.uint8).numpy().tobytes()
        heard[(position.stage - apart) % stages] = came
    return [heard[stage][: len(said)] for stage in range(stages)]


class MailboxLinks:
    transport = group_pb2.PEERS

    def __init__(self, inbox: mailbox.Inbox, outbox: mailbox.Outbox) -> None:
        self._inbox, self._outbox = inbox, outbox

    def send_hidden(self, step: int, hidden: torch.Tensor) -> None:
        self._outbox.send(hidden)

    def receive_hidden(self, step: int, into: torch.Tensor) -> None:
        self._inbox.receive(into)

    def send_sampled(self, step: int, buffers: StepBuffers, ids: torch.Tensor, count: int) -> None:
        self._outbox.send_ids(buffers, ids)

    def take_sampled(self, pending: StepTokens, state: DeviceState) -> None:
        self._inbox.take_ids(state)


class _Leaving(NamedTuple):
    """On its way to the host. there: once it is."""

    step: int
    tensor: torch.Tensor
    there: torch.cuda.Event


class HostLinks:
    """The thread ends with the links; a rank whose peers are gone learns it from the next call that waits for one."""

    def __init__(self, links: Links) -> None:
        self.transport = links.transport
        self._links = links
        self._leaving: SimpleQueue[_Leaving] = SimpleQueue()
        self._failure: Exception | None = None
        Thread(target=self._send, daemon=True, name="leaving").start()

    def send_hidden(self, step: int, hidden: torch.Tensor) -> None:
        self._leave(step, hidden)

    def send_sampled(self, step: int, buffers: StepBuffers, ids: torch.Tensor, count: int) -> None:
        self._leave(step, ids[:count])

    def receive_hidden(self, step: int, into: torch.Tensor) -> None:
        came = self._links.receive_hidden(step)
        pinned = torch.empty(came.shape, dtype=came.dtype, pin_memory=True)
        pinned.copy_(came)
        into.copy_(pinned, non_blocking=True)

    def take_sampled(self, pending: StepTokens, state: DeviceState) -> None:
        sampled = self._links.receive_sampled()
        ids = checked(pending, sampled.number, sampled.ids)
        words = np.array((pending.slots, pending.places, ids), dtype=np.int32)
        slots, places, values = upload_words(words.reshape(-1), state.tokens.device).view(3, -1)
        state.tokens.index_put_((slots.long(), places.long()), values)

    def _leave(self, step: int, tensor: torch.Tensor) -> None:
        if self._failure is not None:
            raise self._failure
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        pinned.copy_(tensor, non_blocking=True)
        there = torch.cuda.Event(blocking=True)
        there.record()
        self._leaving.put(_Leaving(step, pinned, there))

    def _send(self) -> None:
        try:
            while True:
                step, tensor, there = self._leaving.get()
                there.synchronize()
                if tensor.dtype == torch.int32:
                    self._links.send_sampled(Sampled(step, tuple(tensor.tolist())))
                else:
                    self._links.send_hidden(step, tensor)
        except Exception as error:
            self._failure = error
