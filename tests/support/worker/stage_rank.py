"""A rank of a pipeline as a real process that has links and no model: it sends and receives what a test says."""

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import torch
from support.patience import PATIENCE_S
from support.processes.forked import preload

from octavo.worker.config import Config
from octavo.worker.distributed.links import Sampled
from octavo.worker.distributed.pipeline.links import GrpcLinks
from octavo.worker.topology import Layout, RankPosition

_START = multiprocessing.get_context("forkserver")
preload("octavo.worker.distributed.pipeline.links")
_SPARE = ("serve", "status", "health", "metrics")


class StageRank:
    """Of a pipeline of `stages` ranks. peers: what it takes for the --group address of each pod; its own is `group`."""

    def __init__(
        self, rank: int, peers: list[str], group: str, incarnation: str = "now", **config: Any
    ) -> None:  # Any: fields of Config
        self.pipe, far = _START.Pipe()
        values = {"group": group, "peers": tuple(peers), "pipeline": len(peers), "pod_index": rank, **config}
        self.process = _START.Process(target=_run, args=(far, values, rank, incarnation), daemon=True)
        self.process.start()
        far.close()

    def ask(self, name: str, *arguments: object) -> "StageRank":
        """Begin a function of the links, or one of this module's."""
        self.pipe.send((name, arguments))
        return self

    def answer(self, timeout_s: float = PATIENCE_S) -> Any:  # Any: of the function
        """What it returned; what it raised is raised."""
        assert self.pipe.poll(timeout_s), f"no answer within {timeout_s} s"
        answer = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def call(self, name: str, *arguments: object) -> Any:
        return self.ask(name, *arguments).answer()

    def close(self) -> None:
        self.process.kill()
        self.process.join(PATIENCE_S)
        self.pipe.close()


def tensor_of(step: int, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """The same in each process."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(step)).to(getattr(torch, dtype))


def _run(pipe: Connection, values: dict[str, Any], rank: int, incarnation: str) -> None:
    torch.set_num_threads(1)
    config = Config(model="m", served_name="m", **dict.fromkeys(_SPARE, values["group"]), **values)
    links = GrpcLinks(config, RankPosition(Layout(1, config.pipeline, 1), rank), incarnation)
    while True:
        name, arguments = pipe.recv()
        try:
            pipe.send(_FUNCTIONS[name](links, *arguments))
        except Exception as error:
            pipe.send(error)


def _send(links: GrpcLinks, steps: range, shape: tuple[int, ...], dtype: str) -> None:
    for step in steps:
        links.send_hidden(step, tensor_of(step, shape, dtype))


def _receive(links: GrpcLinks, steps: range, shape: tuple[int, ...], dtype: str) -> bool:
    """Whether they came as they were sent."""
    return all(torch.equal(links.receive_hidden(step), tensor_of(step, shape, dtype)) for step in steps)


def _sample(links: GrpcLinks, steps: range) -> None:
    for step in steps:
        links.send_sampled(Sampled(step, (step, 2**32 - 1)))


def _hear(links: GrpcLinks, count: int) -> list[Sampled]:
    return [links.receive_sampled() for _ in range(count)]


_FUNCTIONS: dict[str, Any] = {  # Any: each has its own arguments
    "send": _send, "receive": _receive, "sample": _sample, "hear": _hear,
    "connect": GrpcLinks.connect, "late": lambda links: links.late,
}  # fmt: skip
