"""What a user waits for on the test bed's cluster: `python benchmarks/cluster.py [--out FILE]`, as root.

    apply_to_ready   kubectl apply of examples/minimal.yaml to Ready, images on the nodes
    rank_killed      kill -9 of the rank inside the pod, to serving again
    pod_deleted      kubectl delete pod, to serving again

Takes over the bed's cluster, or starts one (`make bed` has to have built it).
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import record

sys.path.insert(0, str(record.ROOT / "tests"))

from support.bed import cluster, wait_until
from support.deployed import Service, forget, release

LIMIT_S = 120


def gone_and_back(service: Service, breaks: Callable[[], object]) -> float:
    """Seconds from the break until the service says Ready again, having said that it was not."""
    since = service.condition("Ready")["lastTransitionTime"]
    begun = time.monotonic()
    breaks()

    def back() -> bool:
        seen = service.condition("Ready")
        return seen.get("status") == "True" and seen["lastTransitionTime"] != since

    wait_until(back, LIMIT_S, "the service is Ready again")
    return round(time.monotonic() - begun, 1)


def measure() -> dict[str, float]:
    with cluster() as bed:
        forget(bed)
        with release(bed, "benchmark", bed.state / "models") as here:
            begun = time.monotonic()
            here.kubectl("apply", "-f", str(record.ROOT / "examples" / "minimal.yaml"))
            chat = Service(here, "chat")
            chat.wait("Ready", "True", timeout_s=LIMIT_S)
            results = {"apply_to_ready_s": round(time.monotonic() - begun, 1)}
            time.sleep(2)  # transition times are whole seconds
            results["rank_killed_s"] = gone_and_back(chat, lambda: chat.kill("rank"))
            time.sleep(2)
            pod = next(iter(chat.pods()))
            delete = ("delete", "pod", pod, "--wait=false", "--grace-period=10")
            results["pod_deleted_s"] = gone_and_back(chat, lambda: here.kubectl(*delete))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "cluster-cpu.json")
    arguments = parser.parse_args()
    made_on = record.machine(["torch", "kopf", "grpcio"])
    results = measure()
    for name, seconds in results.items():
        print(f"{name:18} {seconds:6.1f}")
    record.write(arguments.out, made_on, results)


if __name__ == "__main__":
    main()
