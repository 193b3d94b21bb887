"""Progress of a group's start, from its supervisor's Status: a bar on a terminal, else one line per phase."""

import asyncio
import sys

import grpc

from octavo.local.start_failed import StartFailed
from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.shared.failure_reasons import FailureReason

POLL_S = 0.2
PHASES = {
    group_pb2.STARTING: "starting",
    group_pb2.FETCHING: "fetching",
    group_pb2.LOADING: "loading",
    group_pb2.WARMING: "warming",
    group_pb2.SERVING: "serving",
    group_pb2.DRAINING: "draining",
    group_pb2.PHASE_FAILED: "failed",
}
WIDTH = 30
# The supervisor listens within a second or two: gRPC's default back-off would wait longer each time.
OPTIONS = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200))


class Progress:
    """Prints phases; a failure that a restart cannot help ends the wait."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = ""

    async def until_serving(self, address: str, name: str) -> None:
        """Prints the progress of one group until it serves. Raises StartFailed."""
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            stub = group_pb2_grpc.StatusStub(channel)
            while True:
                status = await self._poll(stub)
                if status is not None:
                    self._show(name, status)
                    if status.phase == group_pb2.SERVING:
                        self._end()
                        return
                    reason = FailureReason.known(status.last_failure.reason)
                    if status.phase == group_pb2.PHASE_FAILED and reason is not None and not reason.restart_helps:
                        self._end()
                        raise StartFailed(reason, f"{status.last_failure.message}; {reason.advice}")
                await asyncio.sleep(POLL_S)

    async def _poll(self, stub: "group_pb2_grpc.StatusAsyncStub") -> group_pb2.GroupStatus | None:
        try:
            answer: group_pb2.GroupStatus = await stub.Get(group_pb2.StatusRequest(), timeout=2.0)
        except grpc.aio.AioRpcError:
            return None  # the supervisor does not listen yet
        return answer

    def _show(self, name: str, status: group_pb2.GroupStatus) -> None:
        phase, percent = PHASES.get(status.phase, "starting"), status.progress_percent
        if self._terminal:
            filled = WIDTH * percent // 100
            text = f"\r{name}: {phase:<9} [{'#' * filled}{'.' * (WIDTH - filled)}] {percent:3d} %"
        else:
            text = f"{name}: {phase}\n"  # one line a phase: percentages would flood a log
        if text != self._shown:
            self._shown = text
            sys.stderr.write(text)
            sys.stderr.flush()

    def _end(self) -> None:
        if self._terminal:
            sys.stderr.write("\n")
        self._shown = ""
