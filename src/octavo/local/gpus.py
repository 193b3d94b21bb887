"""GPU assignment for the pods of a local service, as a device plugin does in a cluster."""

from collections.abc import Mapping

from octavo.local.commands import Sockets
from octavo.operator.api.v1alpha1 import Spec
from octavo.worker.devices.gpu import VISIBLE


def shown(spec: Spec, sockets: Sockets, gpus: int, ours: Mapping[str, str]) -> dict[str, str]:
    """Environment of a pod with its GPUs, one per rank, assigned round robin; no GPU is in two pods of a group.

    gpus: number of GPUs that this process sees; {} for 0 or 1. ours: this process's environment.
    """
    if gpus < 2:
        return {}
    seen = ours.get(VISIBLE)
    names = [str(index) for index in range(gpus)] if seen is None else [name.strip() for name in seen.split(",")]
    per_pod = spec.accelerator.per_pod
    first = (sockets.group * spec.pods + sockets.pod) * per_pod
    return {VISIBLE: ",".join(names[(first + rank) % gpus] for rank in range(per_pod))}
