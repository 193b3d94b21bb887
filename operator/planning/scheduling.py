"""Why a pod has no node, and from when on that is a failure."""

import math
import re

from octavo.operator.groups.groups import condition, unix
from octavo.operator.groups.rollout import UNSCHEDULABLE_S
from octavo.operator.groups.snapshot import Object, WarningEvent
from octavo.operator.planning.cause import Cause

NODE_ADDED_S = 900.0  # in which a cluster autoscaler adds a node with accelerators and it joins: 3 to 15 minutes
# Events by which an autoscaler says that it adds a node for the pod: the cluster autoscaler's, and Karpenter's.
SCALE_UP_EVENTS = frozenset({"TriggeredScaleUp", "Nominated"})


def unscheduled(pod: Object, shown: str, events: tuple[WarningEvent, ...]) -> Cause | None:
    """Cause why the pod has no node; None if it has one, or the scheduler has not tried yet.

    shown: the scheduler's message, short. events: of this pod.
    """
    scheduled, name = condition(pod, "PodScheduled"), pod["metadata"]["name"]
    if scheduled.get("status") != "False":
        return None
    if scheduled.get("reason") == "SchedulingGated":
        gates = ", ".join(str(gate.get("name")) for gate in pod["spec"].get("schedulingGates") or ())
        message = f"{name}: waits until its scheduling gates are removed" + (f": {gates}" if gates else "")
        return Cause("SchedulingGated", message, math.inf)
    if scheduled.get("reason") != "Unschedulable":
        return None
    since = unix(scheduled.get("lastTransitionTime"))
    failure_at = -math.inf if since is None else since + UNSCHEDULABLE_S
    message = str(scheduled.get("message", ""))
    if "persistentvolumeclaim" in message.lower() or "volume node affinity" in message:
        # A claim that is missing stays so; one that is not bound may be about to be.
        return Cause("VolumePending", f"{name}: {shown}", failure_at if "unbound" in message else -math.inf)
    scale_up = max((event.time_s for event in events if event.reason in SCALE_UP_EVENTS), default=None)
    if scale_up is not None and scale_up + NODE_ADDED_S > failure_at:
        why = f"{name}: waits for a node that the cluster autoscaler adds: {shown}"
        return Cause("Unschedulable", why, scale_up + NODE_ADDED_S)
    lacking = sorted(set(re.findall(r"Insufficient ([^\s,.]+(?:\.[^\s,.]+)*)", message)))
    if lacking:
        return Cause("Unschedulable", f"{name}: no node has enough {' and '.join(lacking)}: {shown}", failure_at)
    return Cause("Unschedulable", f"{name}: no node is suitable: {shown}", failure_at)
