"""Why an incarnation ended, and the failure that the status shows. PURE."""

import signal
from collections.abc import Sequence
from typing import TypeAlias

from octavo.proto.v1 import group_pb2
from octavo.shared.failure_reasons import FailureReason, exited
from octavo.worker.config import Config
from octavo.worker.lifecycle.liveness import Violation
from octavo.worker.membership.status import failure
from octavo.worker.supervisor.child_processes import Exit

Ended: TypeAlias = group_pb2.Failure | Violation | Exit | None  # None: drained
_FROM_THE_LEADER = (FailureReason.LEADER_LOST, FailureReason.JOIN_REFUSED)
_MORE_MEMORY = "raise resources.limits.memory or lower kvCacheMemory"


def is_secondary(ended: Ended) -> bool:
    """The exit of a rank because another one had gone, or of serve because of what a pod reported."""
    if not isinstance(ended, Exit) or ended.report is None:
        return False
    return ended.name == "serve" or ended.report.reason == FailureReason.PEER_LOST


def is_local(ended: Ended) -> bool:
    """Whether this pod found it out by itself: not from the leader, nor by the loss of that."""
    return isinstance(ended, Exit) or (isinstance(ended, Violation) and ended.reason not in _FROM_THE_LEADER)


def root_cause(exits: Sequence[Exit], said: Ended) -> Ended:
    """The exit that says most: the first that was neither our doing nor secondary, else what the leader said."""
    own = [one for one in exits if not one.killed]
    return next((one for one in own if not is_secondary(one)), said or next(iter(own), None))


def to_failure(config: Config, ended: Ended, out_of_memory: bool) -> group_pb2.Failure | None:
    """None when the incarnation ended as it should."""
    if isinstance(ended, Exit):
        # serve leaves by itself only when the group has drained
        drained = ended.name == "serve" and ended.code == 0
        return None if drained else name_exit(config.pod_name, ended, out_of_memory)
    if isinstance(ended, Violation):
        return failure(config.pod_of(ended.rank), ended.rank, ended.reason, 0, ended.message)
    if ended is None:
        return None
    reason = FailureReason.parse(ended.reason)
    return failure(ended.pod or config.pod_name, ended.rank, reason, ended.exit_code, ended.message)


def not_started(pod_name: str, error: OSError, out_of_memory: bool) -> group_pb2.Failure:
    """Name what kept this pod's processes from being started; a later one may have the memory or the descriptors."""
    if out_of_memory:  # it was the fork server: other processes have an Exit
        text = f"the kernel killed what ranks are forked from, for memory: {_MORE_MEMORY}"
        return failure(pod_name, -1, FailureReason.OOM_KILLED, -signal.SIGKILL, text)
    text = f"the processes of this pod could not be started: {error}"
    return failure(pod_name, -1, FailureReason.START_FAILED, 0, text)


def name_exit(pod_name: str, ended: Exit, out_of_memory: bool) -> group_pb2.Failure:
    """Name the cause of an exit: what the child said, else the kernel, else the exit code."""
    if ended.report is not None:
        return failure(pod_name, ended.rank, ended.report.reason, ended.code, ended.report.message)
    if out_of_memory and ended.code == -signal.SIGKILL:
        text = f"the kernel killed {ended.name} for memory: {_MORE_MEMORY}"
        return failure(pod_name, ended.rank, FailureReason.OOM_KILLED, ended.code, text)
    how = f"signal {signal.Signals(-ended.code).name}" if ended.code < 0 else f"exit code {ended.code}"
    process = ended.name if ended.rank < 0 else f"rank {ended.rank}"
    return failure(pod_name, ended.rank, exited(ended.name), ended.code, f"{process} ended: {how}")
