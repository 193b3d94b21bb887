"""Nodes that are being drained, of the pods of services whose spec.disruption.onDrain is surge.

The nodes are looked at again every few seconds, whatever becomes of the services, and a service is reconciled when one
of its nodes begins or ceases to be drained. A watch would need permission to list nodes, and memory for all of them.

A look that fails changes nothing: what was found before stands, and where nothing was, the service is not planned. Else
its groups would seem to stay, and their replacements would be deleted while they load.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping

from octavo.operator.cluster.kube import NODE, Kube, KubeError
from octavo.operator.groups.snapshot import Object

LOOK_S = 5.0  # between two looks at all nodes, as kubectl drain waits between two evictions
# From the first refusal (403) of a look at a node until nodes count as forbidden, if it is refused each time: an API
# server that has just started refuses what it allows a moment later.
REFUSED_S = 30.0
FORBIDDEN_LOOK_S = 60.0
APART_S = 0.05  # between two nodes
# Taints by which autoscalers drain a node that they do not cordon: the cluster autoscaler's, and Karpenter's.
TAINTS = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"})

log = logging.getLogger(__name__)


class Drains:
    """on_change: called with `namespace/name` of a service of which a node begins or ceases to be drained. leads:
    whether this replica reconciles services; another one forgets them."""

    def __init__(self, kube: Kube, on_change: Callable[[str], None], leads: Callable[[], bool]) -> None:
        self._kube, self._on_change, self._leads = kube, on_change, leads
        self._services: dict[str, tuple[str, frozenset[str]]] = {}  # by uid: key, nodes
        self._found: dict[str, str] = {}  # by node: how a drain is known; empty: it is not being drained
        self._refused: dict[str, float] = {}  # by node whose last look was refused: monotonic time of the first refusal
        self._is_forbidden = False

    async def of(self, uid: str, key: str, pods: Iterable[Object]) -> Mapping[str, str] | None:
        """The nodes of these pods that are being drained, and how that is known; None: nodes may not be read. Raises
        KubeError if a node cannot be read that has not been before."""
        nodes = frozenset(str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName"))
        self._services[uid] = key, nodes
        for node in sorted(nodes - self._found.keys()):
            if self._is_forbidden:
                break
            error = await self._look(node)
            if self._is_forbidden:
                self._reconcile_all()
            elif error is not None:
                raise error
        if self._is_forbidden:
            return None
        return {node: how for node in sorted(nodes) if (how := self._found.get(node))}

    def forget(self, uid: str) -> None:
        self._services.pop(uid, None)

    async def run(self) -> None:
        """Look at the nodes again and again."""
        while True:
            await asyncio.sleep(FORBIDDEN_LOOK_S if self._is_forbidden else LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Look at each node of a service once."""
        if not self._leads():
            self._services.clear()
        nodes = frozenset[str]().union(*(of for _, of in self._services.values()))
        self._found = {node: how for node, how in self._found.items() if node in nodes}
        self._refused = {node: since for node, since in self._refused.items() if node in nodes}
        for node in sorted(nodes):
            before, was_forbidden = self._found.get(node), self._is_forbidden
            error = await self._look(node)
            if self._is_forbidden is not was_forbidden:
                self._reconcile_all()
            elif self._found.get(node) != before:
                for key, of in tuple(self._services.values()):
                    if node in of:
                        self._on_change(key)
            if self._is_forbidden and error is not None:
                return
            await asyncio.sleep(APART_S)

    def _reconcile_all(self) -> None:
        for key, _ in tuple(self._services.values()):
            self._on_change(key)

    async def _look(self, name: str) -> KubeError | None:
        """Look at a node; the error if that fails: what was known stands."""
        try:
            node = await self._kube.get(NODE, None, name)
        except KubeError as error:
            since = self._refused.setdefault(name, time.monotonic()) if error.status == 403 else math.inf
            if time.monotonic() - since >= REFUSED_S and not self._is_forbidden:
                self._is_forbidden = True
                log.warning("nodes cannot be read: spec.disruption.onDrain is evict for all services")
            return error
        self._refused.pop(name, None)
        self._is_forbidden &= bool(self._refused)
        self._found[name] = drain_of(node)
        return None


def drain_of(node: Object | None) -> str:
    """How it is known that a node is being drained; empty: it is not. None: there is no such Node."""
    if node is None:
        return ""
    if node["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return "is cordoned"
    taint = next((taint["key"] for taint in spec.get("taints") or () if taint.get("key") in TAINTS), None)
    return f"has the taint {taint}" if taint else ""
