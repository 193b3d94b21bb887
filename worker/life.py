"""One life of a pod's processes: fresh memory, serve, core and rank; it ends when any of them does, or is stuck.

Nothing of a life outlives it: every process is killed and reaped before `run` returns.
"""

import asyncio
import logging
import signal
import time
from dataclasses import dataclass

from octavo.proto.v1 import group_pb2
from octavo.worker import board as boards
from octavo.worker.board import Board, Gauge, Slot
from octavo.worker.cgroup import oom_kills
from octavo.worker.children import Children, Exit
from octavo.worker.config import Config
from octavo.worker.group import pod
from octavo.worker.status import GroupState, failure
from octavo.worker.watch import Pulse, Verdict, Watch, look
from octavo.worker.wiring import Wiring, create_shared

_PHASES = group_pb2.Phase.values()
_LOOK_S = 0.25
_LEAVE_S = 2.0
_LAST_WORD_S = 1.0  # how long an exit may take to be seen after the leader's stream has broken

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Birth:
    """What a life needs to know. local: the leader's socket inside this pod."""

    config: Config
    model_dir: str
    fingerprint: str
    local: str
    parent: int


class Life:
    """serve, core and one rank. state: what the supervisor shows; this life keeps its phase and progress up to date."""

    def __init__(self, birth: Birth, state: GroupState, children: Children) -> None:
        self._birth = birth
        self._state = state
        self._children = children
        self._shared = create_shared()
        self._board = Board(self._shared.board)
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
        tasks: list[asyncio.Task[group_pb2.Failure | Verdict | Exit | None]] = []
        try:
            self._start()
            tasks = [asyncio.create_task(one) for one in (self._exit(), self._watch(), self._join())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended = next(task for task in tasks if task.done()).result()
            if ended is None:  # drained: let serve write its last bytes and leave by itself
                await asyncio.wait({tasks[0]}, timeout=_LEAVE_S)
            return self._failure(ended, ooms)
        except OSError as error:  # no memory, processes or descriptors now; a later life may have them
            text = f"the processes of this pod could not be started: {error}"
            return failure(self._birth.config.pod_name, -1, "StartFailed", 0, text)
        finally:
            for task in tasks:
                task.cancel()
            if not self._draining:  # not ready from now on: what is killed may take a while to be gone
                self._state.phase = group_pb2.STARTING
            await self._children.kill()

    def drain(self) -> None:
        """Ask the leader to refuse new work, finish and end the life. Before it serves there is nothing to finish."""
        self._draining = True
        self._state.phase = group_pb2.DRAINING
        self._children.signal("serve", signal.SIGTERM)

    def close(self) -> None:
        """Give the memory back; after `run`."""
        self._board.close()
        self._shared.close()

    def _start(self) -> None:
        birth = self._birth
        for name, rank, slot in (("serve", -1, boards.SERVE), ("core", -1, boards.CORE), ("rank", 0, boards.RANK)):
            share = Wiring(
                config=birth.config, model_dir=birth.model_dir, fingerprint=birth.fingerprint, shared=self._shared,
                local=birth.local, report=-1, slot=slot, parent=birth.parent,
            )  # fmt: skip
            pid = self._children.start(name, rank, share)
            logger.info("started %s, pid %d", name, pid)

    async def _exit(self) -> Exit:
        while not self._children.exits:
            self._children.changed.clear()
            await self._children.changed.wait()
        return self._children.exits[0]

    async def _watch(self) -> Verdict:
        now = time.monotonic_ns()
        watch = Watch(look_ns=now, since_ns=now)
        while True:
            serving = self._show()
            watch, verdict = look(watch, self._pulses(), serving, time.monotonic_ns())
            if verdict is not None:
                return verdict
            await asyncio.sleep(_LOOK_S)

    async def _join(self) -> group_pb2.Failure | Exit | Verdict | None:
        config = self._birth.config
        handshake = group_pb2.JoinHandshake(
            service_uid=config.service_uid, revision=config.revision, stage=config.stage,
            fingerprint=self._birth.fingerprint,
        )  # fmt: skip
        try:
            return await pod.join(self._birth.local, handshake, self._joined, self._heartbeat)
        except pod.LeaderLost as error:
            try:  # a leader that died is better named by its exit
                return await asyncio.wait_for(self._exit(), _LAST_WORD_S)
            except TimeoutError:
                return Verdict("LeaderLost", -1, str(error))

    def _joined(self, incarnation: str) -> None:
        self._state.incarnation = incarnation
        logger.info("joined incarnation %s", incarnation)

    def _heartbeat(self) -> group_pb2.Heartbeat:
        return group_pb2.Heartbeat(
            phase=self._state.phase,
            progress_percent=self._state.progress_percent,
            finished_step=self._board.read(boards.RANK, Slot.FINISHED),
        )

    def _pulses(self) -> list[Pulse]:
        return [
            self._pulse("serve", -1, boards.SERVE, beats=True),
            self._pulse("core", -1, boards.CORE, beats=True),
            self._pulse("rank", 0, boards.RANK, beats=False),
        ]

    def _pulse(self, name: str, rank: int, slot: int, beats: bool) -> Pulse:
        read = self._board.read
        return Pulse(
            name, rank, read(slot, Slot.HEARTBEAT), read(slot, Slot.PHASE), read(slot, Slot.PROGRESS),
            read(slot, Slot.DEADLINE), beats,
        )  # fmt: skip

    def _show(self) -> bool:
        """Bring the phase in the state up to date; whether the group serves."""
        state, board = self._state, self._board
        phases = [board.read(slot, Slot.PHASE) for slot in (boards.SERVE, boards.CORE, boards.RANK)]
        serving = all(phase == group_pb2.SERVING for phase in phases)
        rank = phases[2] or group_pb2.STARTING
        if serving and self._served_since is None:
            self._served_since = time.monotonic()
            self._keep_context_length()
            logger.info("incarnation %s serves", state.incarnation)
        if self._draining:
            state.phase = group_pb2.DRAINING
        elif serving:
            state.phase = group_pb2.SERVING
        else:
            state.phase = _PHASES[rank] if rank < group_pb2.SERVING else group_pb2.WARMING
        state.progress_percent = 100 if serving else board.read(boards.RANK, Slot.PROGRESS)
        return serving

    def _keep_context_length(self) -> None:
        length = self._board.gauge(Gauge.CONTEXT_LENGTH)
        model = self._state.model
        if model is not None and length:
            if length < model.context_length:
                model.note = f"context length lowered from {model.context_length}: the KV cache cannot hold more"
            model.context_length = length

    def _failure(self, ended: group_pb2.Failure | Verdict | Exit | None, ooms: int) -> group_pb2.Failure | None:
        name = self._birth.config.pod_name
        if isinstance(ended, Exit):
            return None if self._draining and ended.code == 0 else name_exit(name, ended, oom_kills() > ooms)
        if isinstance(ended, Verdict):
            return failure(name, ended.rank, ended.reason, 0, ended.message)
        if ended is None:
            return None
        return failure(ended.pod or name, ended.rank, ended.reason, ended.exit_code, ended.message)


def name_exit(pod_name: str, ended: Exit, out_of_memory: bool) -> group_pb2.Failure:
    """Name the cause of an exit: what the child said, else the kernel, else the exit code."""
    if ended.report is not None:
        return failure(pod_name, ended.rank, ended.report.reason, ended.code, ended.report.message)
    if out_of_memory and ended.code == -signal.SIGKILL:
        text = f"the kernel killed {ended.name} for memory: raise resources.limits.memory or lower kvCacheMemory"
        return failure(pod_name, ended.rank, "OOMKilled", ended.code, text)
    how = f"signal {signal.Signals(-ended.code).name}" if ended.code < 0 else f"exit code {ended.code}"
    return failure(pod_name, ended.rank, f"{ended.name.capitalize()}Exited", ended.code, f"{ended.name} ended: {how}")
