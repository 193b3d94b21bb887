"""Nodes that are lost, of the pods on them that are not healthy. Without permission to read nodes none is."""

import logging
import time

from octavo.operator.cluster.kube import NODE, Kube, KubeError
from octavo.operator.groups.groups import condition, deleting, ready, unix
from octavo.operator.groups.snapshot import LostNode, Object

RECHECK_S = 5.0
FORBIDDEN_RECHECK_S = 60.0  # permission may come while the operator runs: the chart's readNodes

log = logging.getLogger(__name__)


class Nodes:
    """The last looks at nodes, for all services."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._looks: dict[str, tuple[float, LostNode | None]] = {}  # by name: monotonic time, result
        self._forbidden_at = float("-inf")

    async def lost(self, pods: tuple[Object, ...]) -> dict[str, LostNode]:
        """By name, the lost nodes of these pods."""
        suspects = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName") and _is_unhealthy(pod)}
        return {node: lost for node in sorted(suspects) if (lost := await self._look(node)) is not None}

    async def _look(self, name: str) -> LostNode | None:
        now = time.monotonic()
        if now - self._forbidden_at < FORBIDDEN_RECHECK_S:
            return None
        checked_at, lost = self._looks.get(name, (float("-inf"), None))
        if now - checked_at < RECHECK_S:
            return lost
        self._looks = {node: look for node, look in self._looks.items() if now - look[0] < RECHECK_S}
        try:
            node = await self._kube.get(NODE, None, name)
        except KubeError as error:
            if error.status == 403:
                if self._forbidden_at == float("-inf"):
                    log.warning("nodes cannot be read: pods of a lost node stay until Kubernetes removes the node")
                self._forbidden_at = now
            return None
        lost = lost_node(node)
        self._looks[name] = (now, lost)
        return lost


def lost_node(node: Object | None) -> LostNode | None:
    """How a node is lost; None if it is Ready, or has said nothing yet. node: None if there is no such Node."""
    if node is None:
        return LostNode("gone", 0.0)
    states = {"Unknown": "unreachable", "False": "not ready"}
    found = condition(node, "Ready")
    if found.get("status") not in states:
        return None
    return LostNode(states[found["status"]], unix(found.get("lastTransitionTime")) or 0.0)


def _is_unhealthy(pod: Object) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return deleting(pod) or (running and not ready(pod))
