"""The ranks of a stage on CPUs: sums and gathers by gloo, over TCP.

They meet at a store, which rank 0 of the stage holds where it spans several pods. Its keys begin with the incarnation:
keys of an earlier one are ignored. A sum goes round a ring, where each rank adds up its share of the numbers once and
passes it on; so it is the same to the bit everywhere. (torch's ProcessGroupGloo, without its global state)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from octavo.proto.v1 import group_pb2
from octavo.worker.errors import PeerLost

_distributed: Any = torch.distributed  # its types lack most of what is used here

# Supervisors end what lasts too long, by the rules of supervisor/incarnation_run.py; this must never come before them.
_PATIENCE = timedelta(hours=12)


class Gloo:
    """Gathering, of `size` ranks."""

    transport = group_pb2.GLOO

    def __init__(self, rank: int, size: int, meeting: str, incarnation: str, host: str = "127.0.0.1") -> None:
        """Waits until all are there. meeting: `file:///path`, on one machine, or `tcp://host:port`. host: this rank's
        own name or address, by which the others reach it. Raises PeerLost when they cannot meet."""
        self.rank, self.size = rank, size
        gloo = _distributed.ProcessGroupGloo
        with _peers():
            options = gloo._Options()
            options._devices = [gloo.create_device(hostname=host)]
            options._timeout = _PATIENCE
            store = _store(rank, size, meeting)
            store.set_timeout(_PATIENCE)
            self._group = gloo(_distributed.PrefixStore(incarnation, store), rank, size, options)

    def sum_(self, x: torch.Tensor) -> torch.Tensor:
        with _peers():
            self._group.allreduce([x]).wait()
        return x

    def add_sum_(self, residual: torch.Tensor, x: torch.Tensor) -> None:
        residual += self.sum_(x)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        gathered = x.new_empty((self.size, *x.shape))
        with _peers():
            self._group.allgather([list(gathered.unbind(0))], [x]).wait()
        return gathered


@contextmanager
def _peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # all that gloo and its stores raise
        raise PeerLost(f"a rank of this stage is gone: {error}") from error


def _store(rank: int, size: int, meeting: str) -> Any:
    scheme, _, place = meeting.partition("://")
    if scheme == "file":
        return _distributed.FileStore(place, size)
    host, _, port = place.rpartition(":")
    mine = rank == 0
    return _distributed.TCPStore(host.strip("[]"), int(port), size, mine, timeout=_PATIENCE, wait_for_workers=False)
