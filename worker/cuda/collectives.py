"""How the GPUs of a stage add up: by each other's memory where they reach it, else by NCCL. Chosen once, by all."""

import logging

import torch

from octavo.kernels.cuda import allreduce, nccl
from octavo.proto.v1 import group_pb2
from octavo.worker.collective import ALONE, Collective
from octavo.worker.cuda.shared import Exchange, Unshared, share

logger = logging.getLogger(__name__)


class Peers:
    """The Collective of ranks whose GPUs write to each other's memory."""

    transport = group_pb2.PEERS

    def __init__(self, rank: int, regions: list[int]) -> None:
        self.rank, self.size = rank, len(regions)
        self._team = allreduce.Team(rank, regions)

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        self._team.sum_(x)
        return x

    def add_sum_(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        self._team.sum_(x, residual)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        return self._team.gather(x)


class Nccl(nccl.Nccl):
    """The Collective of ranks whose GPUs do not."""

    transport = group_pb2.NCCL


def on_device(host: Collective) -> Collective:
    """The same ranks' collective for tensors of the current device. host: theirs on CPUs, by which they agree."""
    if host.size == 1:
        return ALONE
    exchange = exchange_by(host)
    why = f"a stage of {host.size} ranks has more than {allreduce.MOST_RANKS}"
    if host.size <= allreduce.MOST_RANKS:
        try:
            return Peers(host.rank, share(allreduce.region_bytes(host.size), host.rank, exchange))
        except Unshared as error:
            why = str(error)
    logger.warning("the GPUs of this stage add up by NCCL: %s", why)
    identity = exchange(nccl.new_id() if host.rank == 0 else bytes(nccl.ID_BYTES))[0]
    return Nccl(host.rank, host.size, identity)


def exchange_by(host: Collective) -> Exchange:
    """Of ranks that meet on their CPUs."""

    def exchange(said: bytes) -> list[bytes]:
        gathered = host.gather(torch.frombuffer(bytearray(said), dtype=torch.uint8))
        return [bytes(answer.tolist()) for answer in gathered]

    return exchange
