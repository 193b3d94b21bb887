"""What the operator takes with many services: `python benchmarks/reconcile.py [--services N] [--ready] [--out FILE]`.

A real API server and controller manager of the test bed (no nodes), on it N services of one namespace, and the operator
as a process of its own. With --ready there are nodes that kwok simulates (simulated_nodes.py), so that all services are
ready: their leaders and routers are asked for their status all the time. Measured: from the first `apply` until the
operator rests, what it writes and takes of a CPU while nothing happens, from the change of a spec until the object that
follows from it is there, from the start of a new operator until it has looked at every service, and the most memory
that either had.
"""

import argparse
import asyncio
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import record

sys.path.insert(0, str(record.ROOT / "tests"))
from simulated_nodes import CONTROLLERS as WITHOUT_ENDPOINTS
from simulated_nodes import KWOK, simulated_nodes
from support.cluster.bed import Bed, api_server, missing, wait_until
from support.cluster.operators import service, settled, writes

from octavo.operator.cluster.kube import SERVICE_CR, STATEFUL_SET, Kube
from octavo.operator.cluster.login import login

CRD = record.ROOT / "charts/octavo/files/crds/inferenceservices.yaml"
CHANGES, BATCH, IDLE_S = 20, 50, 120
REST_S = 60  # looks become rare in the first minute without news
SETTLE_S = 3600.0  # of the API server and the controller manager more than of ours
CONTROLLERS = "--kube-api-qps=200 --kube-api-burst=400"  # else it makes 20 objects a second
READY_LOOK_S = 5.0
CHANGE_S, RESTART_S, MEMORY_MIB = 1.0, 60.0, 300


class Operator:
    """`octavo operator` of one namespace, started as in its container."""

    def __init__(self, bed: Bed, space: str, log: Path, port: int) -> None:
        self._log = log
        self._metrics = f"http://127.0.0.1:{port}/metrics"
        flags = ["--namespace", space, "--lease-namespace", space, "--metrics", f"127.0.0.1:{port}"]
        command = [sys.executable, "-m", "octavo", "operator", *flags, "--health", f"127.0.0.1:{port + 1}"]
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, env=bed.environment, stdout=file, stderr=file)

    def metric(self, name: str) -> float:
        """0 while it does not answer. Raises SystemExit if it has ended: what is waited for will not come."""
        if self.process.poll() is not None:
            sys.exit(f"the operator has ended with {self.process.returncode}: {self._log.read_text()[-1000:]}")
        try:
            with urllib.request.urlopen(self._metrics, timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    @property
    def reconciled(self) -> float:
        return self.metric("octavo_operator_reconcile_seconds_count")

    def peak_mib(self) -> float:
        """The most that it had in memory so far."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@contextmanager
def operator(bed: Bed, space: str, folder: Path, port: int) -> Iterator[Operator]:
    one = Operator(bed, space, folder / "operator.log", port)
    try:
        yield one
    finally:
        one.stop()


async def change(names: list[str], space: str) -> list[float]:
    """Seconds from the answer to the change of each until its second group is there."""
    kube, took = Kube(partial(login, logging.getLogger(__name__))), []
    try:
        for name in names:
            path = SERVICE_CR.path(space, name)
            await kube.call("PATCH", path, body={"spec": {"replicas": 2}}, content_type="application/merge-patch+json")
            began = time.monotonic()
            while await kube.get(STATEFUL_SET, space, f"{name}-1") is None:
                await asyncio.sleep(0.01)
            took.append(time.monotonic() - began)
    finally:
        await kube.close()
    return took


def ready(bed: Bed, space: str) -> int:
    """Services that are ready by pods of their present spec, and have nothing left to do."""
    found = bed.objects("infsvc", space)
    types = [{one["type"]: one["status"] for one in item.get("status", {}).get("conditions", ())} for item in found]
    return sum(one.get("Ready") == one.get("UpToDate") == "True" for one in types)


def all_ready(bed: Bed, space: str, count: int) -> bool:
    """Looks seldom: to list a thousand services costs the API server more than the operator does."""
    time.sleep(READY_LOOK_S)
    return ready(bed, space) == count


def measure(bed: Bed, space: str, count: int, folder: Path, with_nodes: bool) -> dict[str, float]:
    """with_nodes: wait until all services are ready."""
    names = [f"s{number}" for number in range(count)]
    with operator(bed, space, folder, 18080) as first:
        wait_until(lambda: first.metric("octavo_operator_leader") == 1, 60, "the operator leads")
        began = time.monotonic()
        for start in range(0, count, BATCH):
            bed.apply(*(service(name) for name in names[start : start + BATCH]), namespace=space)
        if with_nodes:
            wait_until(lambda: all_ready(bed, space, count), SETTLE_S, "all services are ready")
        settled(bed, space, quiet_s=10, timeout_s=SETTLE_S)
        filled_s, filling_mib, are_ready = time.monotonic() - began - 10, first.peak_mib(), ready(bed, space)
        time.sleep(REST_S)
        offset, cpu, began = bed.audit_log.stat().st_size, first.cpu_s(), time.monotonic()
        time.sleep(IDLE_S)
        idle_cpu = (first.cpu_s() - cpu) / (time.monotonic() - began)
        assert bed.audit_log.stat().st_size >= offset, f"{bed.audit_log} was begun again: raise its size in control.sh"
        idle_writes = len(writes(bed, space, offset))
        os.environ["KUBECONFIG"] = str(bed.kubeconfig)
        took = asyncio.run(change(names[:CHANGES], space))
        settled(bed, space, quiet_s=10, timeout_s=SETTLE_S)
        first_mib = first.peak_mib()
    began = time.monotonic()
    with operator(bed, space, folder, 18082) as second:
        waits = "octavo_operator_queue_waiting"
        wait_until(
            lambda: second.reconciled >= count and second.metric(waits) == 0, SETTLE_S, "the second looked at all"
        )
        restart_s = time.monotonic() - began
        restart_cpu, second_mib = second.cpu_s(), second.peak_mib()
    return {
        "services": count,
        "ready": are_ready,
        "filled_s": round(filled_s, 1),
        "idle_writes": idle_writes,
        "idle_cpu_percent": round(100 * idle_cpu, 1),
        "change_median_s": round(statistics.median(took), 3),
        "change_worst_s": round(max(took), 3),
        "restart_s": round(restart_s, 1),
        "restart_cpu_s": round(restart_cpu, 1),
        "restarted_mib": round(second_mib),
        "filling_mib": round(filling_mib),
        "peak_mib": round(max(first_mib, second_mib)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--ready", action="store_true", help="with simulated nodes, on which all services are ready")
    parser.add_argument("--out", type=Path, help="default: reconcile.json or reconcile-ready.json, among the results")
    arguments = parser.parse_args()
    out = arguments.out or record.RESULTS / ("reconcile-ready.json" if arguments.ready else "reconcile.json")
    if (reason := missing("api")) is not None:
        sys.exit(f"no API server: {reason}")
    os.environ.setdefault("CONTROLLER_ARGS", f"{CONTROLLERS} {WITHOUT_ENDPOINTS}" if arguments.ready else CONTROLLERS)
    made_on = record.machine(("aiohttp", "kopf"))
    if arguments.ready:
        made_on["packages"]["kwok"] = KWOK
    with api_server() as bed, tempfile.TemporaryDirectory() as folder:
        bed.apply(CRD)
        bed.wait_for_crd("inferenceservices.octavo.dev")
        with bed.namespace("many") as space:
            logs = Path(folder)
            with simulated_nodes(bed, space, logs) if arguments.ready else nullcontext():
                found = measure(bed, space, arguments.services, logs, arguments.ready)
    made_on["load_after"] = round(os.getloadavg()[0], 2)
    print(f"{found['services']} services, {found['ready']} ready, made and settled in {found['filled_s']} s")
    rows = (
        ("writes in two idle minutes, but the Lease's", found["idle_writes"], 0, ""),
        ("a change takes effect, worst", found["change_worst_s"], CHANGE_S, " s"),
        ("a restarted operator has looked at all", found["restart_s"], RESTART_S, " s"),
        ("most memory", found["peak_mib"], MEMORY_MIB, " MiB"),
    )
    for text, value, limit, unit in rows:
        print(f"{text}: {value}{unit} (at most {limit}{unit}: {'met' if value <= limit else 'MISSED'})")
    record.write(out, made_on, [found])


if __name__ == "__main__":
    main()
