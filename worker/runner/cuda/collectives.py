"""How the GPUs of a stage add up: by each other's memory where they reach it, else by NCCL. Chosen once, by all."""

import logging
from collections.abc import Callable

import torch

from octavo.kernels.cuda.collectives import allreduce, nccl
from octavo.kernels.cuda.collectives.rows import RowBox
from octavo.proto.v1 import group_pb2
from octavo.worker.distributed.collective import ALONE, Collective, Gathering
from octavo.worker.runner.cuda.shared import Exchange, Unshared, share

logger = logging.getLogger(__name__)
_LARGE_BYTES = 16 << 20  # of 64 MiB over two H200s NCCL takes 296 us, we 372; of 8 MiB 53, we 43


class Peers:
    """The Collective of ranks whose GPUs write to each other's memory."""

    transport = group_pb2.PEERS

    def __init__(self, rank: int, regions: list[int], large: nccl.Nccl | None = None) -> None:
        """regions: addresses of all ranks' memory; what is beyond that of sums are boxes for rows (`boxes`). large:
        what adds up more than some MiB; None: the same as the rest."""
        self.rank, self.size = rank, len(regions)
        self.team = allreduce.Team(rank, regions)
        self.boxes = [region + allreduce.region_bytes(self.size) for region in regions]
        self._large = large
        self._side = None if large is None else torch.cuda.Stream()

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        if self._is_large(x) and self._large is not None:
            return self._large.sum_(x)
        self.team.sum_(x)
        return x

    def add_sum_(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        if self._is_large(x) and self._large is not None:
            self._large.add_sum_(residual, x)
        else:
            self.team.sum_(x, residual)

    def add_sum_norm_(
        self, residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor | None:
        """One row is normalised by the product that reads it."""
        if x.shape[0] == 1 or self._is_large(x) or not self.team.norms(x):
            self.add_sum_(residual, x)
            return None
        return self.team.sum_norm(x, residual, weight, eps)

    def overlaps(self, x: torch.Tensor) -> bool:
        return self._side is not None and self._is_large(x)

    def begin_sum(self, x: torch.Tensor) -> Callable[[], None]:
        assert self._large is not None and self._side is not None, "asked for although it does not overlap"
        computing = torch.cuda.current_stream()
        self._side.wait_stream(computing)
        with torch.cuda.stream(self._side):
            self._large.sum_(x)
        summed = self._side.record_event()
        return lambda: computing.wait_event(summed)

    @staticmethod
    def _is_large(x: torch.Tensor) -> bool:
        """Of 16-bit numbers alone: float32 is for answers that do not depend on how many rows are together, and NCCL
        adds up in an order of its own."""
        return x.numel() * x.element_size() > _LARGE_BYTES and x.dtype in (torch.bfloat16, torch.float16)


class Nccl(nccl.Nccl):
    """The Collective of ranks whose GPUs do not."""

    transport = group_pb2.NCCL


def on_device(host: Gathering, box: RowBox | None = None) -> Collective:
    """The same ranks' collective for tensors of the current device. host: theirs on CPUs, by which they agree. box: for
    the rows that each of them draws; None on stages that do not."""
    if host.size == 1:
        return ALONE
    exchange = exchange_by(host)
    why = f"a stage of {host.size} ranks has more than {allreduce.MOST_RANKS}"
    if host.size <= allreduce.MOST_RANKS:
        try:
            size = allreduce.region_bytes(host.size) + (0 if box is None else box.bytes)
            regions = share(size, host.rank, exchange)
            return Peers(host.rank, regions, _nccl(host, exchange))
        except Unshared as error:
            why = str(error)
    logger.warning("the GPUs of this stage add up by NCCL: %s", why)
    identity = exchange(nccl.new_id() if host.rank == 0 else bytes(nccl.ID_BYTES))[0]
    return Nccl(host.rank, host.size, identity)


def _nccl(host: Gathering, exchange: Exchange) -> Nccl | None:
    """Beside the GPUs' own way; None where a rank has no library."""
    here = nccl.available()
    identity = nccl.new_id() if here and host.rank == 0 else bytes(nccl.ID_BYTES)
    said = exchange(bytes([here]) + identity)
    if not all(one[0] for one in said):
        return None
    return Nccl(host.rank, host.size, said[0][1:])


def exchange_by(host: Gathering) -> Exchange:
    """Of ranks that meet on their CPUs."""

    def exchange(said: bytes) -> list[bytes]:
        gathered = host.gather(torch.frombuffer(bytearray(said), dtype=torch.uint8))
        return [bytes(answer.tolist()) for answer in gathered]

    return exchange
