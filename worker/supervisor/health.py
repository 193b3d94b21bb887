"""What the kubelet asks. A kubelet cannot do mutual TLS, so this is plain HTTP on a port of its own.

/startupz and /readyz are 200 exactly while the group serves, or sleeps: routers keep their streams to a group that
sleeps, and requests for it, so that a wake is all that it needs. /livez fails only when the supervisor cannot end a
process it killed; a supervisor that is stuck does not answer at all. It never fails while a pod loads or restarts.
"""

from collections.abc import Callable, Mapping

from octavo.proto.v1 import group_pb2
from octavo.worker.membership.status import GroupState
from octavo.worker.supervisor.pages import Page


def health_pages(state: GroupState, unkillable_s: Callable[[], float]) -> Mapping[str, Callable[[], Page]]:
    """unkillable_s: for how long a killed process has refused to end; 0 when none does."""

    def live() -> Page:
        stuck_s = unkillable_s()
        if stuck_s > 10.0:
            return Page(503, f"a killed process has not ended for {stuck_s:.0f} s\n".encode())
        return Page(200, b"alive\n")

    def ready() -> Page:
        phase = group_pb2.Phase.Name(state.phase)
        if state.phase == group_pb2.SERVING:
            return Page(200, b"serving\n")
        if state.phase == group_pb2.ASLEEP:
            return Page(200, b"asleep\n")
        return Page(503, f"{phase} {state.progress_percent} %\n".encode())

    return {"/livez": live, "/readyz": ready, "/startupz": ready}
