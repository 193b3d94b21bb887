"""The ranks of a group as the processes that a worker has, on this machine's devices; to a test they are one device.

They get steps by rings and answer by rings, as in a pod. What a supervisor does is left out: the next call raises for
a rank that failed, and all end with the test.
"""

import math
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from octavo.shared.failure_reasons import FailureReason
from octavo.worker.config import Config
from octavo.worker.devices.gpu import VISIBLE
from octavo.worker.errors import CannotSleep, CannotWake, Fault
from octavo.worker.ipc import process_context, ring
from octavo.worker.ipc.process_context import ProcessContext, create_shared
from octavo.worker.ipc.ring import RingReader, RingWriter
from octavo.worker.messages import rank_info
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.memory import MemoryState, Sleep, Wake
from octavo.worker.messages.rank_info import RankCapabilities
from octavo.worker.messages.step import MaskSource, Step, StepResult, no_masks

_BE_RANK = "from octavo.worker.ipc.process import run; from octavo.worker.rank.rank import main; run('rank', main)"
_SPARE = ("serve", "status", "health", "metrics")
_POLL_MS = 200
_STEP_S = 30.0  # that a step may take: one of a hung group never ends, and a GPU's time is dear


class RankProcesses:
    """A DeviceRunner. Rank i of a group on GPUs takes the i-th that this process may see."""

    def __init__(
        self, model: Path, tensor: int, pipeline: int, timeout_s: float = 120.0, before: str = "", **config: Any
    ) -> None:  # Any: fields of Config
        """Waits until all have loaded the model. before: Python that each of them runs first."""
        self._code = f"{before}\n{_BE_RANK}"
        self._folder = tempfile.TemporaryDirectory(prefix="octavo-ranks-")
        groups = tuple(f"unix:{self._folder.name}/pod-{pod}" for pod in range(pipeline))
        values = {"tensor": tensor, "pipeline": pipeline, "ranks_per_pod": tensor, "peers": groups, **config}
        values |= {name: f"unix:{self._folder.name}/{name}" for name in _SPARE}
        configs = [Config(str(model), "m", group=group, pod_index=pod, **values) for pod, group in enumerate(groups)]
        self.layout = configs[0].layout
        self._shared = create_shared(self.layout.ranks)
        self._steps = [RingWriter(fds) for fds in self._shared.steps]
        self._results = [RingReader(fds) for fds in self._shared.results]
        self._poll = select.poll()
        for reader in self._results:
            self._poll.register(reader.fds.data, select.POLLIN)
        self._reports: list[int] = []
        self._number = 0  # of steps; it only rises, though each engine counts from the start
        self._closed = False
        self._processes = [
            self._start(configs[self.layout.pod_of(rank)], model, rank) for rank in range(self.layout.ranks)
        ]
        said = self._hellos(timeout_s)
        self.blocks, self.context_length, self.vocabulary = said.blocks, said.context_length, said.vocabulary
        self.max_requests, self.max_batch_tokens = said.max_requests, said.max_batch_tokens
        self.graphs, self.features, self.device, self.path = said.graphs, said.features, said.device, said.path

    def _start(self, config: Config, model: Path, rank: int) -> "subprocess.Popen[bytes]":
        reading, writing = os.pipe()
        self._reports.append(reading)
        pod = config.pod_index
        mine = ProcessContext(
            config, str(model), "", "one", self._shared, local=f"unix:{self._folder.name}/local-{pod}", report=writing,
            rank=rank, parent=os.getpid(),
        )  # fmt: skip
        seen = os.environ.get(VISIBLE)
        names = [str(index) for index in range(self.layout.ranks)] if seen is None else seen.split(",")
        own = ",".join(names[index] for index in self.layout.ranks_of(pod) if index < len(names))
        command = [sys.executable, "-c", self._code, process_context.dump(mine)]
        environment = {**os.environ, VISIBLE: own} if config.device == "cuda" else dict(os.environ)
        started = subprocess.Popen(command, pass_fds=[*self._shared.all(), writing], env=environment)
        os.close(writing)
        return started

    def _hellos(self, timeout_s: float) -> RankCapabilities:
        heard: list[RankCapabilities] = []
        end = time.monotonic() + timeout_s
        while len(heard) < self.layout.ranks:
            if time.monotonic() > end:
                self.close()
                raise TimeoutError(f"{len(heard)} of {self.layout.ranks} ranks said hello within {timeout_s} s")
            heard += [said for record in self._wait() if (said := rank_info.load(record)) is not None]
        return rank_info.intersect(heard)

    def _wait(self) -> list[bytes]:
        """What the ranks say, once they say something or some time has passed."""
        self._check()
        for fd, _ in self._poll.poll(_POLL_MS):
            ring.clear(fd)
        return [record for reader in self._results for record in iter(reader.pop, None)]

    def _check(self, end: float = math.inf) -> None:
        """Raises Fault when a rank has ended, or when it is later than `end`."""
        for rank, started in enumerate(self._processes):
            if (code := started.poll()) is not None:
                said = os.read(self._reports[rank], 4096).decode()
                self.close()
                raise Fault(FailureReason.RANK_FAILED, f"rank {rank} has exited with {code}: {said}")
        if time.monotonic() > end:
            self.close()
            raise Fault(FailureReason.RANK_FAILED, f"no result of a step for {_STEP_S} s")

    def issue(self, step: Step, masks: MaskSource = no_masks) -> "Pending":
        self._refuse_if_closed()
        self._number += 1
        self._tell(encode(replace(step, number=self._number)))
        if step.sample.masked:
            self._tell(encode(replace(masks(step.number), number=self._number)))
        return Pending(self, step.number)

    def _tell(self, record: bytes) -> None:
        end, check = time.monotonic() + _STEP_S, ring.checksum(record)
        for steps in self._steps:
            while not steps.push(record, check):
                self._check(end)
                time.sleep(0.001)

    def collect(self, number: int) -> StepResult:
        """Of the oldest step without one, which is called so here."""
        self._refuse_if_closed()
        reader = self._results[self.layout.output_rank]
        end = time.monotonic() + _STEP_S
        while True:
            if (record := reader.pop()) is not None:
                result = decode(record)
                assert isinstance(result, StepResult)
                return replace(result, number=number)
            self._check(end)
            for fd, _ in self._poll.poll(_POLL_MS):
                ring.clear(fd)

    @property
    def copy_bytes(self) -> int:
        """Each of the ranks knows it."""
        return 0

    def prepare_sleep(self) -> None:
        """A rank that was started to do so has begun by itself."""

    def sleep(self, keep_kv: bool) -> int:
        return self._order(Sleep(keep_kv))

    def wake(self) -> int:
        return self._order(Wake())

    def _order(self, order: Sleep | Wake) -> int:
        """Bytes that all ranks together gave back, or took."""
        self._refuse_if_closed()
        self._tell(encode(order))
        said: list[MemoryState] = []
        end = time.monotonic() + _STEP_S
        while len(said) < self.layout.ranks:
            self._check(end)
            said += [state for record in self._wait() if isinstance(state := decode(record), MemoryState)]
        if errors := [state.error for state in said if state.error]:
            raise (CannotSleep if isinstance(order, Sleep) else CannotWake)(errors[0])
        return sum(state.moved_bytes for state in said)

    def _refuse_if_closed(self) -> None:
        """Tests that share a group which has failed in one of them fail at once."""
        if self._closed:
            raise Fault(FailureReason.RANK_FAILED, "the group has ended before this")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for started in self._processes:
            started.kill()
            started.wait()
        for end in (*self._steps, *self._results):
            end.close()
        self._shared.close()
        for report in self._reports:
            os.close(report)
        self._folder.cleanup()


@dataclass(frozen=True)
class Pending:
    ranks: RankProcesses
    number: int

    def result(self) -> StepResult:
        return self.ranks.collect(self.number)
