"""A service on a GPU in a real cluster, from nothing: `make prove-gpu`, or this with PYTHONPATH=src:tests:benchmarks.

Starts the bed with one node, which is this machine; tells it of its GPUs by a device plugin; installs the chart; and
applies an InferenceService with `accelerator.resource: nvidia.com/gpu`. Looks that

- a pod of another sort, with the same restrictions, computes on the GPU;
- the service becomes Ready, answers at its Service's address, and its rank's process holds memory of the GPU;
- after kill -9 of the rank it is Ready again, and answers the same;
- after its deletion the memory of the GPU is free again;
- where there are two GPUs, a group of `parallelism.tensor: 2` does the same.

Needs root, the bed's programs (`make programs`), a Python with PyTorch (this one), and the kernels
(`python -m octavo.kernels.build`). No registry and no large image: thin_images.py says how. The model has the shape of
Llama 3.2 1B and random weights. Where something fails, the logs of all that took part are printed, and the exit code
is 1.

--accelerator cpu goes the same way without a GPU. --pretend makes two files that are no GPUs and looks that the status
says so.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import device_plugin
import failure
import probe_pod
import record
import thin_images
from gpu_service import RESTRICTED, Service, install, memory_mib, volume
from support.cluster.api_client import ApiClient
from support.cluster.bed import Bed, places, wait_until

DNS = Path(__file__).parents[1] / "bed" / "coredns.yaml"
NODE = "node1"
SOCKET = f"/run/octavo-bed/{NODE}.sock"
MODEL_S, UP_S, IMAGES_S, GPU_S, DNS_S, READY_S, GONE_S = 90, 120, 60, 40, 60, 150, 130  # what each phase may take
FREE_MIB = 64  # of a GPU's memory: two looks at an idle one may differ by that
HOLDS_MIB = 1024  # the weights alone are more
Json = dict[str, Any]  # Any: JSON


class Laps:
    """Says what is done, and how long it took; keeps that."""

    def __init__(self, found: record.Found) -> None:
        self._found = found
        self._began = time.monotonic()

    @contextmanager
    def lap(self, name: str) -> Iterator[Json]:
        """What is put into the result is kept beside the seconds, also of a phase that fails."""
        result: Json = {"phase": name}
        print(f"{time.monotonic() - self._began:6.1f} s  {name} ...", flush=True)
        begin = time.monotonic()
        try:
            yield result
            result["ok"] = True
        except BaseException as error:
            result |= {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}
            raise
        finally:
            result["seconds"] = round(time.monotonic() - begin, 1)
            self._found.put(name, result)
            print(
                "          " + "  ".join(f"{key} {value}" for key, value in result.items() if key != "phase"),
                flush=True,
            )


@contextmanager
def running(work: Path, args: argparse.Namespace, laps: Laps) -> Iterator[Bed]:
    """The bed with one node, the images on it and, unless it has none, its GPUs."""
    state, binaries = places("cluster")
    bed = Bed("cluster", state, binaries, ApiClient(state))
    spec = work / "runtime-spec.json"
    os.environ |= {"NODES": "1", "RUNTIME_SPEC": str(spec)}
    (state.parent / "store" / "root").mkdir(parents=True, exist_ok=True)  # that a node's containerd starts from
    plugin = None
    try:
        with laps.lap("cluster up"):
            spec.write_text(thin_images.runtime_spec())
            bed.script("up.sh", timeout=UP_S)
        with laps.lap("images on the node") as result:
            archives = thin_images.build(work / "images", binaries / "coredns", args.packages)
            for archive in archives:
                command = ["ctr", "-a", SOCKET, "-n", "k8s.io", "images", "import", str(archive)]
                subprocess.run(command, check=True, timeout=IMAGES_S, stdout=subprocess.DEVNULL)
            result["MiB"] = sum(archive.stat().st_size for archive in archives) >> 20
        with laps.lap("names of the cluster"):
            bed.apply(DNS.read_text().replace("replicas: 2", "replicas: 1"))
            bed.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", f"--timeout={DNS_S}s")
        if args.accelerator == device_plugin.RESOURCE:
            with laps.lap("device plugin") as result:
                plugin = _plugin(state, args)
                wanted = str(len(device_plugin.gpus(args.devices)))
                wait_until(lambda: plugin_says(bed, plugin) == wanted, GPU_S, f"{wanted} GPUs that the node offers")
                result["allocatable"] = wanted
        yield bed
    except BaseException:
        failure.tell(bed)
        raise
    finally:
        if plugin is not None:
            plugin.kill()
            plugin.wait()
        if not args.keep:
            bed.script("down.sh")


def _plugin(state: Path, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    assert device_plugin.gpus(args.devices), f"there is no {args.devices}/nvidia0: this machine has no GPU"
    command = [sys.executable, device_plugin.__file__, "--devices", str(args.devices)]
    driver = ["--driver", str(args.driver)] if args.driver.is_dir() else []
    with open(state / "log" / "device-plugin.log", "wb") as log:
        return subprocess.Popen([*command, *driver], stdout=log, stderr=subprocess.STDOUT)


def plugin_says(bed: Bed, plugin: subprocess.Popen[bytes]) -> str:
    """How many GPUs may be had on the node."""
    assert plugin.poll() is None, "the device plugin has ended"
    node = bed.get("node", NODE, "") or {}
    return str(node.get("status", {}).get("allocatable", {}).get(device_plugin.RESOURCE, ""))


def prove(service: Service, laps: Laps, args: argparse.Namespace, tensor: int) -> None:
    """Ready, an answer, a killed rank, the same answer, and nothing left."""
    on_gpu, title = args.accelerator == device_plugin.RESOURCE, f"tensor {tensor}: "
    before = memory_mib() if on_gpu else []
    with laps.lap(title + "applied until Ready") as result:
        service.apply(args.model_name, args.accelerator, tensor)
        service.ready(READY_S)
        result |= {"status": service.summary()}
    with laps.lap(title + "an answer") as result:
        result |= (answer := service.ask())
        result |= {"device": service.devices()}
    if on_gpu:
        with laps.lap(title + "on the GPU") as result:
            result |= {"memory_mib": memory_mib(), "before_mib": before, "processes": service.on_gpus()}
            taken = [now - then for now, then in zip(result["memory_mib"], before, strict=True)]
            assert sum(each > HOLDS_MIB for each in taken) == tensor, (
                f"not {tensor} GPUs hold the model: {taken} MiB more"
            )
            assert all("NVIDIA" in name for name in service.devices()), "a rank does not say that it is on a GPU"
    with laps.lap(title + "a rank is killed until Ready") as result:
        result["killed"] = service.kill_rank()
        service.restarted(READY_S)
        result |= {"status": service.summary()}
    with laps.lap(title + "the same answer"):
        again = service.ask()
        assert again["text"] == answer["text"], f"another answer than before: {again['text']!r}, not {answer['text']!r}"
    with laps.lap(title + "deleted until all is gone") as result:
        service.delete(GONE_S)
        if on_gpu:
            free = wait_until(lambda: _free_again(before), GONE_S, "the memory of the GPUs that is free again")
            result["memory_mib"] = free


def _free_again(before: list[int]) -> list[int]:
    now = memory_mib()
    return now if all(a <= b + FREE_MIB for a, b in zip(now, before, strict=True)) else []


def refused(service: Service, laps: Laps, args: argparse.Namespace) -> None:
    """Of what only looks like a GPU the status says that there is none."""
    with laps.lap("a device that is no GPU") as result:
        small = {"requests": {"cpu": "100m"}}  # a machine without a GPU may have few CPUs
        service.apply(args.model_name, args.accelerator, 1, resources=small)
        message = wait_until(lambda: service.complaint("PyTorch sees no GPU"), READY_S, "a status that says why")
        result["message"] = message
        service.delete(GONE_S)


def steps(work: Path, args: argparse.Namespace, laps: Laps) -> None:
    with laps.lap("model"):
        folder = args.model or written(args.models)
        args.model_name = folder.name
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    with running(work, args, laps) as bed:
        with laps.lap("chart installed"):
            bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "octavo", "labels": RESTRICTED}})
            bed.apply(*volume("octavo", folder.parent))
            install(bed, "octavo")
        gpus = len(device_plugin.gpus(args.devices)) if args.accelerator == device_plugin.RESOURCE else 0
        if gpus:
            with laps.lap("a pod of another sort") as result:
                result["said"] = probe_pod.run(bed, "octavo", gpus)
                assert args.pretend or '"cuda": true' in result["said"], "the pod found no GPU"
        service = Service(bed, "octavo", "chat")
        if args.pretend:
            refused(service, laps, args)
            return
        for tensor in (1, 2) if gpus > 1 else (1,):
            prove(service, laps, args, tensor)


def written(models: Path) -> Path:
    """The folder of random weights; by a process of its own, which takes its part of the GPU with it."""
    code = "import shapes, pathlib, sys; shapes.checkpoint('1b', pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(models)], check=True, timeout=MODEL_S)
    return models / "1b"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerator", choices=[device_plugin.RESOURCE, "cpu"], default=device_plugin.RESOURCE)
    parser.add_argument("--pretend", action="store_true", help="hand out files that are no GPUs")
    parser.add_argument("--model", type=Path, help="a folder to serve (default: random weights)")
    parser.add_argument(
        "--models", type=Path, default=Path("/var/tmp/octavo-models"), help="where random ones are written"
    )
    parser.add_argument(
        "--packages", type=Path, action="append", default=[], help="a folder of packages for the images"
    )
    parser.add_argument("--devices", type=Path, default=Path("/dev"), help="folder of the GPUs' device files")
    parser.add_argument(
        "--driver", type=Path, default=device_plugin.DRIVER, help="the driver's folder, if it has its own"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="octavo-prove-"))
    if args.pretend:
        args.devices = work / "dev"
        pretended(args.devices)
    try:
        with record.Found(args.out, record.machine(["torch", "grpcio"])) as found:
            steps(work, args, Laps(found))
    except Exception as error:
        print(f"\nFAILED: {type(error).__name__}: {error}", flush=True)
        sys.exit(1)
    finally:
        if not args.keep:
            shutil.rmtree(work, ignore_errors=True)
    print("PROVED", flush=True)


def pretended(folder: Path) -> None:
    """Device files with a GPU's names, of the device that swallows everything."""
    folder.mkdir()
    for name in ("nvidia0", "nvidiactl"):
        os.mknod(folder / name, 0o666 | 0o020000, os.makedev(1, 3))


if __name__ == "__main__":
    main()
