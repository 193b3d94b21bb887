"""One incarnation of a pod's processes: fresh memory, and in the leader's pod serve, core and ranks, in others ranks
alone.

    leader's pod   starts all --> joins its own serve --------------------------> ends, kills all
    other pods     joins the leader --> its incarnation --> starts ranks, feeds --> ends, kills all

It ends when any process does or is stuck, and when the leader says so. Nothing of it outlives it: every process is
killed and reaped before `run` returns.
"""

import asyncio
import glob
import logging
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.proto.v1 import group_pb2
from octavo.shared.failure_reasons import FailureReason
from octavo.worker.addresses import rendezvous_files
from octavo.worker.config import Config
from octavo.worker.ipc.process_context import ProcessContext, create_shared
from octavo.worker.ipc.shared_board import SERVE, Board, Gauge, ProcessSlot
from octavo.worker.lifecycle.liveness import Violation, Watch, check
from octavo.worker.membership import pod
from octavo.worker.membership.status import GroupState
from octavo.worker.supervisor.cgroup import oom_kills
from octavo.worker.supervisor.child_processes import Children
from octavo.worker.supervisor.failure import Ended, is_local, is_secondary, not_started, root_cause, to_failure
from octavo.worker.supervisor.heartbeats import Heartbeats
from octavo.worker.supervisor.step_receiver import StepReceiver
from octavo.worker.tls import dial

_CHECK_S = 0.25
_LEAVE_S = 2.0
_CAUSE_S = 1.0  # how long the better of two causes may take to be heard
_LOCAL_CAUSE_S = 0.2  # that of another rank of the same pod

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What an incarnation is started with. local: the leader's socket inside its pod. started_at_ms: of the
    supervisor."""

    config: Config
    model_dir: str
    outline: str
    local: str
    parent: int
    started_at_ms: int


class IncarnationRun:
    """state: what the supervisor shows; this run keeps its phase and progress up to date. A pod.Listener."""

    def __init__(self, spec: RunSpec, state: GroupState, children: Children) -> None:
        self._spec = spec
        self._config = spec.config
        self._state = state
        self._children = children
        self._shared = create_shared(spec.config.layout.per_pod)
        self._board = Board(self._shared.board)
        self._heartbeats = Heartbeats(self._board, spec.config)
        self._membership = pod.Membership(_handshake(spec), self)
        self._step_receiver: StepReceiver | None = None
        self._group = group_pb2.PHASE_UNSPECIFIED  # else as the leader says
        self._begun: asyncio.Future[ProcessContext] = asyncio.get_running_loop().create_future()
        self._served_since: float | None = None
        self._draining = False

    def gauges(self) -> dict[Gauge, int]:
        return self._board.gauges()

    @property
    def serving(self) -> bool:
        return self._state.phase == group_pb2.SERVING

    @property
    def served_s(self) -> float:
        """How long it has served."""
        return 0.0 if self._served_since is None else time.monotonic() - self._served_since

    async def run(self) -> group_pb2.Failure | None:
        """Until it ends: by a failure, or drained (None)."""
        ooms = oom_kills()
        tasks: list[asyncio.Task[Ended]] = []
        starting = asyncio.create_task(self._start_ranks())
        self._remove_rendezvous()
        try:
            if self._config.leads:
                self._start(uuid.uuid4().hex)
            tasks = [asyncio.create_task(one) for one in (self._exit(), self._watch(), self._join())]
            ended = await self._end(starting, *tasks)
            cause = to_failure(self._config, ended, oom_kills() > ooms)
            if cause is not None and is_local(ended):
                await self._report_failure(cause, tasks)
            return cause
        except OSError as error:
            cause = not_started(self._config.pod_name, error, oom_kills() > ooms)
            await self._report_failure(cause, tasks)
            return cause
        finally:
            for task in (*tasks, starting):
                task.cancel()
            await asyncio.wait({starting})  # so that no rank starts unknown
            if not self._draining:  # not ready from now on: what is killed may take a while to be gone
                self._state.phase = group_pb2.STARTING
            await self._children.kill()
            self._remove_rendezvous()

    def _remove_rendezvous(self) -> None:
        """The files in which ranks of stages that begin in this pod have met, a killed supervisor's included."""
        for address in {self._spec.local, self._config.group}:
            if (pattern := rendezvous_files(address)) is not None:
                for path in glob.glob(pattern):
                    Path(path).unlink(missing_ok=True)

    async def _end(self, starting: asyncio.Task[None], *tasks: asyncio.Task[Ended]) -> Ended:
        """What ended this incarnation. A process that only saw a loss waits a moment for a better cause."""
        exiting, watching, joining = tasks
        await asyncio.wait({*tasks, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()  # raises what kept a rank from being started
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = next(task for task in (joining, exiting, watching) if task.done()).result()
        if ended is None and self._config.leads:  # drained: let serve write its last bytes and leave by itself
            await asyncio.wait({exiting}, timeout=_LEAVE_S)
        if is_secondary(ended):
            await asyncio.wait({joining}, timeout=_CAUSE_S if self._config.leads else _LOCAL_CAUSE_S)
            said = joining.result() if joining.done() else ended
            return root_cause(self._children.exits, said)
        return ended

    async def _report_failure(self, cause: group_pb2.Failure, tasks: list[asyncio.Task[Ended]]) -> None:
        """In a pod that does not lead: tell the leader why; it ends the incarnation everywhere."""
        if not self._config.leads:
            self._membership.failed(cause)
            await self._children.kill()
            await asyncio.wait(tasks[-1:], timeout=_CAUSE_S)

    def drain(self) -> None:
        """Ask the leader to refuse new work, finish and end the incarnation. Before it serves there is nothing to
        finish."""
        self._draining = True
        self._state.phase = group_pb2.DRAINING
        self._membership.drain()

    def close(self) -> None:
        """Give the memory back; after `run`."""
        if self._step_receiver is not None:
            self._step_receiver.close()
        self._board.close()
        self._shared.close()

    def _start(self, incarnation: str) -> None:
        """Start this pod's processes; its ranks as soon as the fork server has forked them."""
        context = self._context(incarnation)
        for name in ("serve", "core") if self._config.leads else ():
            logger.info("started %s, pid %d", name, self._children.start(name, context))
        self._begun.set_result(context)

    def _context(self, incarnation: str) -> ProcessContext:
        spec = self._spec
        return ProcessContext(
            config=spec.config, model_dir=spec.model_dir, outline=spec.outline, incarnation=incarnation,
            shared=self._shared, local=spec.local, report=-1, rank=-1, parent=spec.parent,
        )  # fmt: skip

    async def _start_ranks(self) -> None:
        context = await self._begun
        for rank in self._config.layout.ranks_of(self._config.pod_index):
            logger.info("started rank %d, pid %d", rank, await self._children.fork_rank(replace(context, rank=rank)))

    async def _exit(self) -> Ended:
        while not self._children.exits:
            self._children.changed.clear()
            await self._children.changed.wait()
        return root_cause(self._children.exits, None)

    async def _watch(self) -> Ended:
        """Show the incarnation's state, and end it when it is stuck: the leader's pod sees that of all ranks."""
        watch = Watch.begun(time.monotonic_ns())
        while True:
            serving = self._show()
            if self._config.leads:
                # A pod that does not come is no stalled load; a serve that does not begin is one.
                incomplete = self._group == group_pb2.STARTING
                watch, violation = check(
                    watch, self._heartbeats.processes(), serving or incomplete, time.monotonic_ns()
                )
                if violation is not None:
                    return violation
            if self._step_receiver is not None and (broken := self._step_receiver.broken) is not None:
                return Violation(FailureReason.RANK_FAILED, -1, broken)
            await asyncio.sleep(_CHECK_S)

    async def _join(self) -> Ended:
        address = self._spec.local if self._config.leads else self._config.peers[0]
        try:
            async with dial(address, self._config) as channel:
                return await self._membership.join(channel)
        except pod.JoinRefused as error:
            return Violation(FailureReason.JOIN_REFUSED, -1, str(error))
        except pod.LeaderLost as error:
            try:  # a leader that died is better named by its exit
                return await asyncio.wait_for(self._exit(), _CAUSE_S)
            except TimeoutError:
                return Violation(FailureReason.LEADER_LOST, -1, str(error))

    # What the leader says

    def joined(self, incarnation: str) -> None:
        self._state.incarnation = incarnation
        logger.info("joined incarnation %s", incarnation)
        if not self._config.leads:
            self._step_receiver = StepReceiver(self._shared, self._membership.record)
            self._start(incarnation)

    def step(self, record: bytes) -> None:
        assert self._step_receiver is not None, "the core feeds the ranks of the leader's pod"
        self._step_receiver.step(record)

    def group_is(self, phase: "group_pb2.Phase.ValueType") -> None:
        self._group = phase
        if group_pb2.ASLEEP in (phase, self._state.phase):  # the caller that asked for it looks at once
            self._show()

    def heartbeat(self) -> group_pb2.Heartbeat:
        return self._heartbeats.heartbeat(time.monotonic_ns())

    def _show(self) -> bool:
        """Bring the state up to date; whether the group serves."""
        state = self._state
        state.collective, state.activations = map(
            self._heartbeats.transports, (ProcessSlot.COLLECTIVE, ProcessSlot.ACTIVATIONS)
        )
        serves = self._group in (group_pb2.SERVING, group_pb2.ASLEEP)
        serving = self._heartbeats.serving and (self._config.leads or serves)
        if serving and self._served_since is None:
            self._served_since = time.monotonic()
            self._keep_model()
            logger.info("incarnation %s serves", state.incarnation)
        if self._draining or self._group == group_pb2.DRAINING:
            state.phase = group_pb2.DRAINING
        elif serving:
            state.phase = group_pb2.ASLEEP if self._group == group_pb2.ASLEEP else group_pb2.SERVING
            state.progress_percent = 100
        else:
            state.phase, state.progress_percent = self._heartbeats.loading()
        return serving

    def _keep_model(self) -> None:
        """What the status says of it that only its processes know; in other pods than the leader's nothing."""
        length = self._board.gauge(Gauge.CONTEXT_LENGTH)
        model = self._state.model
        if model is not None and length:
            if length < model.context_length:
                model.note = f"context length lowered from {model.context_length}: the KV cache cannot hold more"
            model.context_length = length
            halves = (self._board.read(SERVE, word) for word in (ProcessSlot.DIGEST, ProcessSlot.DIGEST_END))
            model.digest = "".join(f"{half:016x}" for half in halves)


def _handshake(spec: RunSpec) -> group_pb2.JoinHandshake:
    config = spec.config
    layout = config.layout
    return group_pb2.JoinHandshake(
        service_uid=config.service_uid, revision=config.revision, pod=config.pod_index, outline=spec.outline,
        tensor=layout.tensor, pipeline=layout.pipeline, ranks=layout.per_pod, name=config.pod_name,
        started_at_ms=spec.started_at_ms,
    )  # fmt: skip
