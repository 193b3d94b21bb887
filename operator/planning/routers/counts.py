"""The routers of a service, counted: desired, updated, ready, and connected to a group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from octavo.operator.groups import names
from octavo.operator.groups.groups import deleting, ready
from octavo.operator.groups.snapshot import Object, RouterReport
from octavo.operator.planning.cause import Cause
from octavo.operator.planning.diagnosis import ended

CONNECTED_S = 10.0  # in which a router that reached a group reaches one again: a process of it was replaced
DISCONNECTED_S = 60.0  # until routers that reach no group are a failure


@dataclass(frozen=True, slots=True)
class Routers:
    """Numbers of router pods that neither are being deleted nor have ended.

    updated: of the present configuration, by the revision label of their template. ready: they accept requests.
    connected: ready, and a group serves through them, or they did not answer the operator, which a NetworkPolicy or a
    mesh may prevent. disconnected_since: Unix time since which no ready router reaches a group; None: one does, or none
    is ready. settles_at: Unix time at which a router stops counting as connected; None: none does. stale: name of a
    router that does not learn of new groups; "" if there is none. skew: why a router, ready or not, and a group are of
    releases that do not work together; "" if all are.
    """

    desired: int = 0
    total: int = 0
    updated: int = 0
    ready: int = 0
    connected: int = 0
    updated_ready: int = 0
    updated_connected: int = 0
    disconnected_since: float | None = None
    settles_at: float | None = None
    stale: str = ""
    skew: str = ""

    @property
    def complete(self) -> bool:
        """All are of the present configuration and ready, and none is left of an earlier one."""
        return self.desired == self.total == self.updated_ready

    @property
    def cause(self) -> Cause | None:
        """Cause of a failure that only the routers themselves know; None if there is none."""
        if self.skew:
            return Cause("VersionSkew", self.skew)
        if self.disconnected_since is not None:
            message = (
                "no router reaches a group that serves: see the routers' logs, and which connections to the workers "
                "NetworkPolicies allow"
            )
            return Cause("RouterDisconnected", message, self.disconnected_since + DISCONNECTED_S)
        if self.stale:
            message = f"{self.stale}: it learns of no new group, since the API server does not answer its watch"
            return Cause("RouterWatchLost", message)
        return None


def routers(
    desired: int,
    revision: str,
    pods: Iterable[Object],
    reports: Mapping[str, RouterReport],
    was_ready: bool,
    now: float,
) -> Routers:
    """Count the router pods. revision: of the present configuration. was_ready: the service was, at the last
    observation, so that a moment without a group does not count. now: Unix time in seconds."""
    present = [pod for pod in pods if not deleting(pod) and not ended(pod)]
    updated = [pod for pod in present if names.label(pod, names.REVISION) == revision]
    working = [pod for pod in present if ready(pod)]
    answers = {pod["metadata"]["uid"]: reports.get(pod["metadata"]["uid"], RouterReport()) for pod in working}

    def connected(pod: Object) -> bool:
        since = answers[pod["metadata"]["uid"]].unconnected_since
        return since is None or (was_ready and now < since + CONNECTED_S)

    skews = ((pod["metadata"]["name"], reports.get(pod["metadata"]["uid"], RouterReport()).skew) for pod in present)
    times = [answer.unconnected_since for answer in answers.values()]
    known = [time for time in times if time is not None]
    return Routers(
        desired=desired,
        total=len(present),
        updated=len(updated),
        ready=len(working),
        connected=sum(map(connected, working)),
        updated_ready=sum(map(ready, updated)),
        updated_connected=sum(ready(pod) and connected(pod) for pod in updated),
        disconnected_since=max(known) if known and len(known) == len(times) else None,
        settles_at=min((at + CONNECTED_S for at in known if was_ready and now < at + CONNECTED_S), default=None),
        stale=next((pod["metadata"]["name"] for pod in working if answers[pod["metadata"]["uid"]].stale), ""),
        skew=next((f"{name}: {skew}" for name, skew in skews if skew), ""),
    )
