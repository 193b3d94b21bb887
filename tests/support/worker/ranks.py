"""The ranks of a group as threads of one process, or as processes that sum by gloo; to a test it is one device."""

import multiprocessing
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import torch
from support.processes.forked import preload
from support.processes.threads import LateCollective, ThreadCollective, Together

from octavo.proto.v1 import group_pb2
from octavo.worker.distributed.collective import ALONE, Gathering
from octavo.worker.distributed.gloo import Gloo
from octavo.worker.distributed.links import Sampled
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner
from octavo.worker.topology import Layout, RankPosition

_START = multiprocessing.get_context("forkserver")
preload("octavo.worker.runner.cpu.runner")


class Queue(Protocol):
    """Of threads or of processes."""

    def put(self, item: Any) -> None: ...

    def get(self) -> Any: ...


class QueueLinks:
    """Each rank has two queues of what comes to it: hidden states, sampled ids."""

    transport = group_pb2.TRANSPORT_UNSPECIFIED

    def __init__(self, position: RankPosition, hidden: Sequence[Queue], sampled: Sequence[Queue]) -> None:
        self._place = position
        self._hidden, self._sampled = hidden, sampled

    def send_hidden(self, step: int, hidden: torch.Tensor) -> None:
        assert hidden.is_contiguous()
        self._hidden[self._place.next].put((step, hidden.dtype, hidden.view(torch.uint8).numpy().copy()))

    def receive_hidden(self, step: int) -> torch.Tensor:
        number, dtype, hidden = self._hidden[self._place.rank].get()
        if number != step:
            raise ValueError(f"hidden states of step {number}, not of the awaited {step}")
        return torch.from_numpy(hidden).view(dtype)

    def send_sampled(self, sampled: Sampled) -> None:
        self._sampled[self._place.next].put((sampled.number, sampled.ids))

    def receive_sampled(self) -> Sampled:
        return Sampled(*self._sampled[self._place.rank].get())


@dataclass(frozen=True)
class About:
    """What a rank says once its model is loaded."""

    blocks: int
    context_length: int
    vocabulary: int
    max_requests: int
    max_batch_tokens: int


def _rank(config: RunnerConfig, meeting: Together | Path, queues: Sequence[Sequence[Queue]]) -> None:
    """queues: steps, answers, hidden and sampled of each rank. An answer may be what went wrong."""
    position, (steps, answers, hidden, sampled) = config.position, queues
    inbox, outbox = steps[position.rank], answers[position.rank]
    try:
        links = QueueLinks(position, hidden, sampled) if position.layout.pipeline > 1 else None
        runner = Runner(config, collective=_collective(position, meeting), links=links)
        names = About.__dataclass_fields__
        outbox.put(About(**{name: getattr(runner, name) for name in names}))
        while (asked := inbox.get()) is not None:
            kind, step = asked
            outbox.put(runner.issue(step).result() if kind == "run" else _logits(runner, step))
    except Exception as error:
        outbox.put(error)
        if isinstance(meeting, Together):
            meeting.barrier.abort()


def _collective(position: RankPosition, meeting: Together | Path) -> Gathering:
    if isinstance(meeting, Together):
        return (LateCollective if meeting.late else ThreadCollective)(meeting, position.tp_rank)
    if position.layout.tensor == 1:
        return ALONE
    return Gloo(position.tp_rank, position.layout.tensor, f"file://{meeting}.{position.stage}", "first")


def _logits(runner: Runner, step: Step) -> Any:
    """An array; None where there are none."""
    hidden = runner.forward(step)
    return None if hidden is None else runner.logits(hidden).numpy()


class Ranks:
    """A DeviceRunner, and the logits of its last stage."""

    device, graphs, features = "cpu", list[str](), list[str]()

    def __init__(
        self, config: RunnerConfig, tensor: int, pipeline: int, meeting: Path | None = None, late: bool = False
    ) -> None:
        """Threads, whose sums of several rows may be late; with a path to meet at, processes."""
        self.layout = Layout(tensor, pipeline, tensor)
        ranks = range(self.layout.ranks)
        queue: Any = SimpleQueue if meeting is None else _START.SimpleQueue
        worker: Any = threading.Thread if meeting is None else _START.Process
        stages = [Together(tensor, late) if meeting is None else meeting / uuid.uuid4().hex for _ in range(pipeline)]
        queues: list[list[Queue]] = [[queue() for _ in ranks] for _ in range(4)]
        self._steps, self._answers = queues[:2]
        config = replace(config, threads=1)
        places = [RankPosition(self.layout, rank) for rank in ranks]
        self._workers = [
            worker(target=_rank, args=(replace(config, position=position), stages[position.stage], queues), daemon=True)
            for position in places
        ]
        for one in self._workers:
            one.start()
        abouts = [self._answer(rank) for rank in ranks]
        about: About = min(abouts, key=lambda one: one.blocks)
        self.blocks, self.context_length = about.blocks, about.context_length
        self.vocabulary = about.vocabulary
        self.max_requests, self.max_batch_tokens = about.max_requests, about.max_batch_tokens
        self.device_name = f"{len(ranks)} ranks"

    @property
    def stages(self) -> int:
        return self.layout.pipeline

    def issue(self, step: Step) -> "Pending":
        self._give("run", step)
        return Pending(self)

    def collect(self) -> StepResult:
        """Of the oldest step without one. Every rank of the last stage says the same, the others nothing."""
        results: list[StepResult] = [self._answer(rank) for rank in range(self.layout.ranks)]
        last = results[self.layout.output_rank :]
        assert all(result == last[0] for result in last), last
        assert all(result == StepResult(last[0].number) for result in results[: self.layout.output_rank])
        return last[0]

    def logits(self, step: Step) -> torch.Tensor:
        """[rows, vocabulary]; what pads it is cut off."""
        self._give("logits", step)
        parts = [self._answer(rank) for rank in range(self.layout.ranks)][self.layout.output_rank :]
        return torch.cat([torch.from_numpy(part) for part in parts], dim=1)[:, : self.vocabulary]

    def close(self) -> None:
        for queue in self._steps:
            queue.put(None)
        for one in self._workers:
            one.join(30)

    def _give(self, kind: str, step: Step) -> None:
        for queue in self._steps:
            queue.put((kind, step))

    def _answer(self, rank: int) -> Any:
        answer = self._answers[rank].get()
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(frozen=True)
class Pending:
    ranks: Ranks

    def result(self) -> StepResult:
        return self.ranks.collect()
