"""Nodes of the API server's bed that are simulated by kwok, so that pods are scheduled, run and are ready there.

kube-scheduler binds the pods, kwok (sigs.k8s.io/kwok, built once, beside the bed's other programs) reports them running
and ready at addresses of 127.0.0.0/8, and `pod_answers.py` answers there what the operator asks of leaders and routers.
Nothing else of the pods exists. EndpointSlices cannot have loopback addresses, so no controller may make them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from record import ROOT
from support.cluster.bed import Bed

KWOK = "v0.7.0"
NODES = 10
ADDRESSES = "127.64.0.1/10"  # of the pods
FAKE = "kwok.x-k8s.io/node"
CONTROLLERS = (
    "--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller "
    "--node-monitor-grace-period=1h"  # on a busy machine kwok is late with its heartbeats
)
ROOM = {"cpu": "100k", "memory": "1Pi", "pods": "100k"}  # of a node


@contextmanager
def simulated_nodes(bed: Bed, space: str, log: Path) -> Iterator[None]:
    """The pods of this namespace run until the block ends. log: a folder."""
    kwok = built(bed.binaries.parent / f"kwok-{KWOK}")
    answers = [sys.executable, str(ROOT / "benchmarks" / "pod_answers.py"), "--namespace", space]
    flags = ["--kubeconfig", str(bed.kubeconfig), "--cidr", ADDRESSES]
    flags += ["--manage-all-nodes=false", "--manage-nodes-with-annotation-selector", f"{FAKE}=fake"]
    flags += ["--node-lease-duration-seconds=40"]  # else it sends no heartbeats
    with ExitStack() as stack:
        bed.start("scheduler")
        stack.callback(bed.stop, "scheduler")
        for name, command in (("kwok", [str(kwok), *flags]), ("answers", answers)):
            file = stack.enter_context((log / f"{name}.log").open("wb"))
            process = subprocess.Popen(command, env=bed.environment, stdout=file, stderr=file)
            stack.callback(_end, process)
        for number in range(NODES):
            bed.kubectl("create", "-f", "-", stdin=json.dumps(_node(f"simulated-{number}")))
            stack.callback(bed.client.delete, "node", f"simulated-{number}")
        yield


def built(folder: Path) -> Path:
    """kwok, compiled by Go if it is not there yet: some minutes of both cores."""
    program = folder / "kwok"
    if not program.exists():
        environment = os.environ | {"GOBIN": str(folder), "CGO_ENABLED": "0"}
        target = f"sigs.k8s.io/kwok/cmd/kwok@{KWOK}"
        subprocess.run(["go", "install", "-trimpath", "-ldflags=-s -w", target], env=environment, check=True)
    return program


def _node(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {FAKE: "fake"}, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": ROOM, "capacity": ROOM},
    }


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(30)
