"""How the group is, for the operator: kept by the supervisor, which outlives the processes that serve."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import grpc.aio

from octavo import __version__
from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.shared.failure_reasons import FailureReason
from octavo.worker.config import Config
from octavo.worker.tls import Roles


@dataclass(slots=True)
class GroupState:
    """The supervisor's one changing record; only the supervisor writes it. phase: a value of proto Phase. collective,
    activations: what the ranks of this incarnation have chosen."""

    phase: "group_pb2.Phase.ValueType" = group_pb2.STARTING
    progress_percent: int = 0
    incarnation: str = ""
    restarts: int = 0
    last_failure: group_pb2.Failure | None = None
    model: group_pb2.ModelInfo | None = None
    collective: Sequence["group_pb2.Transport.ValueType"] = ()
    activations: Sequence["group_pb2.Transport.ValueType"] = ()

    def failed(self, failure: group_pb2.Failure) -> None:
        """An incarnation ended by this failure."""
        self.phase = group_pb2.PHASE_FAILED
        self.progress_percent = 0
        self.incarnation = ""
        self.restarts += 1
        self.last_failure = failure


def failure(pod: str, rank: int, reason: FailureReason, exit_code: int, message: str) -> group_pb2.Failure:
    """A failure of now."""
    return group_pb2.Failure(
        pod=pod, rank=rank, reason=reason, exit_code=exit_code, message=message, time_ms=int(time.time() * 1000)
    )


class StatusServicer(group_pb2_grpc.StatusServicer):
    """Answers whether or not the group serves."""

    def __init__(self, config: Config, state: GroupState, roles: Roles) -> None:
        self._config = config
        self._state = state
        self._roles = roles

    async def Get(
        self,
        request: group_pb2.StatusRequest,
        context: "grpc.aio.ServicerContext[group_pb2.StatusRequest, group_pb2.GroupStatus]",
    ) -> group_pb2.GroupStatus:
        await self._roles.require("operator", context)
        state = self._state
        return group_pb2.GroupStatus(
            service_uid=self._config.service_uid,
            revision=self._config.revision,
            incarnation=state.incarnation,
            phase=state.phase,
            progress_percent=state.progress_percent,
            restarts=state.restarts,
            last_failure=state.last_failure,
            model=state.model,
            collective=state.collective,
            activations=state.activations,
            release=__version__,
        )
