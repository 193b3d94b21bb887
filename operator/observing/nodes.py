"""Nodes that are lost, of the pods on them that are not healthy. Without permission to read nodes none is."""

import logging
import time

from octavo.operator.cluster.kube import NODE, Kube, KubeError
from octavo.operator.groups.groups import condition, deleting, ready, unix
from octavo.operator.groups.snapshot import LostNode, Object

RECHECK_S = 5.0

log = logging.getLogger(__name__)


class Nodes:
    """The last looks at nodes, for all services."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._looks: dict[str, tuple[float, LostNode | None]] = {}  # by name: monotonic time, result
        self._forbidden = False

    async def lost(self, pods: tuple[Object, ...]) -> dict[str, LostNode]:
        """By name, the lost nodes of these pods."""
        suspects = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName") and _is_unhealthy(pod)}
        return {node: lost for node in sorted(suspects) if (lost := await self._look(node)) is not None}

    async def _look(self, name: str) -> LostNode | None:
        checked_at, lost = self._looks.get(name, (float("-inf"), None))
        if self._forbidden or time.monotonic() - checked_at < RECHECK_S:
            return lost
        try:
            node = await self._kube.get(NODE, None, name)
        except KubeError as error:
            if error.status == 403:
                self._forbidden = True
                log.warning("no permission to read nodes: pods of a lost node stay until Kubernetes removes the node")
            return None
        lost = lost_node(node)
        self._looks[name] = (time.monotonic(), lost)
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
