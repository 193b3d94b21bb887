"""Which GPUs the pods of a local service see: what a device plugin does in a cluster, on one machine."""

from collections.abc import Mapping

from octavo.local.commands import Sockets
from octavo.operator.api.v1alpha1 import Spec
from octavo.worker.gpu import VISIBLE


def shown(spec: Spec, sockets: Sockets, gpus: int, ours: Mapping[str, str]) -> dict[str, str]:
    """The variable of a pod's environment that names its GPUs, in turn: as many as it has ranks, none twice in a group.

    gpus: how many this process sees; with one or none nothing is to be told. ours: this process's environment.
    """
    if gpus < 2:
        return {}
    seen = ours.get(VISIBLE)
    names = [str(index) for index in range(gpus)] if seen is None else [name.strip() for name in seen.split(",")]
    per_pod = spec.accelerator.per_pod
    first = (sockets.group * spec.pods + sockets.pod) * per_pod
    return {VISIBLE: ",".join(names[(first + rank) % gpus] for rank in range(per_pod))}
