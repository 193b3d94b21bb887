"""The test bed as seen from Python: a real kube-apiserver, or a real cluster of nodes, on this machine.

`api_server()` runs etcd, kube-apiserver and kube-controller-manager; `cluster()` adds nodes that hold our images.
Each is a context manager: it takes over a bed that is already running (and leaves it running), else starts one and
stops it. One session uses a bed at a time; a cluster has lanes, of which each has nodes of its own and one session. The
scripts are in tests/cluster/bed.
"""

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import pytest
import yaml
from support.cluster.api_client import ApiClient
from support.patience import PATIENCE_S, Bound

T = TypeVar("T")
SCRIPTS = Path(__file__).parents[2] / "cluster" / "bed"
COMMAND_S = 2 * PATIENCE_S  # for one that waits by itself, as helm does; no promise
TOOLS = ("containerd", "runc", "buildah", "debootstrap", "iptables")
LOOK_S = 0.5  # a look costs this process and the API server some milliseconds of a CPU


class BedError(Exception):
    """A command of the bed failed; the message holds the command and what it said."""


@dataclass(frozen=True, slots=True)
class Bed:
    """A running API server, and what reaches it."""

    mode: str  # api | cluster
    state: Path
    binaries: Path
    client: ApiClient

    @property
    def kubeconfig(self) -> Path:
        return self.state / "admin.conf"

    @property
    def audit_log(self) -> Path:
        """One JSON event a line: every request to the API server, with its user, verb and object; no bodies."""
        return self.state / "log" / "audit.log"

    @property
    def environment(self) -> dict[str, str]:
        """For a process that talks to this API server."""
        return os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.binaries}:{os.environ['PATH']}",
            "BED_MODE": self.mode,
        }

    @property
    def placement(self) -> dict[str, str]:
        """Annotations of its namespaces: where their pods go."""
        return {}

    def script(self, name: str, *args: str, timeout: float = COMMAND_S) -> str:
        return _run([str(SCRIPTS / name), *args], env=self.environment, timeout=timeout)

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = COMMAND_S) -> str:
        """Its standard output. Raises BedError with what it said on standard error."""
        return _run([str(self.binaries / "kubectl"), *args], env=self.environment, stdin=stdin, timeout=timeout)

    def helm(self, *args: str, timeout: float = COMMAND_S) -> str:
        return _run([str(self.binaries / "helm"), *args], env=self.environment, timeout=timeout)

    def apply(self, *manifests: dict[str, Any] | str | Path, namespace: str = "default") -> None:
        """Server-side apply of objects, YAML texts or files. Raises ApiError."""
        for manifest in manifests:
            for item in _objects(manifest):
                self.client.apply(item, namespace)

    def wait_for_crd(self, name: str) -> None:
        """Until its kind is served. `kubectl wait` fails where the conditions of a new one are null yet."""

        def established() -> bool:
            crd = json.loads(self.kubectl("get", f"crd/{name}", "-o", "json"))
            conditions = crd.get("status", {}).get("conditions") or ()
            return any((one["type"], one["status"]) == ("Established", "True") for one in conditions)

        wait_until(established, 30, f"{name} is established")

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """The object, or None where there is none."""
        return self.client.get(kind, name, namespace)

    def objects(self, kinds: str, namespace: str = "default", selector: str = "") -> list[dict[str, Any]]:
        return self.client.objects(kinds, namespace, selector)

    @contextmanager
    def namespace(self, name: str, **labels: str) -> Iterator[str]:
        """A new namespace under a name that no other test has; it is deleted afterwards, not waited for."""
        name = f"{name}-{time.time_ns() // 1_000_000 % 10**8:08d}"
        metadata = {"name": name, "labels": labels, "annotations": self.placement}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        wait_until(
            lambda: self.get("serviceaccount", "default", name), PATIENCE_S, f"service account of namespace {name}"
        )
        try:
            yield name
        finally:
            self.client.delete("namespace", name)

    def stop(self, process: str) -> None:
        """Kills etcd, apiserver, controller-manager or (in a cluster) scheduler; its state stays."""
        self.script("control.sh", "stop", process)

    def start(self, process: str) -> None:
        self.script("control.sh", "start", process)


@dataclass(frozen=True, slots=True)
class Lane:
    """Tests that run beside other lanes' on one cluster, with nodes of their own."""

    name: str
    nodes: tuple[str, str]


NODES = Lane("nodes", ("node1", "node2"))  # these hold the cluster's DNS; the second is lost now and then
SERVICES = Lane("services", ("node3", "node4"))
_LANE = "octavo.dev/lane"


@dataclass(frozen=True, slots=True)
class Cluster(Bed):
    """A running cluster, as one lane has it. Node N has the address 172.30.0.(10+N)."""

    lane: Lane

    @property
    def placement(self) -> dict[str, str]:
        """Of the lane's nodes, by the admission plugin PodNodeSelector."""
        return {"scheduler.alpha.kubernetes.io/node-selector": f"{_LANE}={self.lane.name}"}

    def claim_nodes(self) -> None:
        """Gives the lane its nodes; missing ones are made."""
        for node in self.lane.nodes:
            if not (self.state / node).is_dir():
                self.script("node.sh", "add", node)
            wait_until(lambda node=node: self.get("node", node), PATIENCE_S, node)  # type: ignore[misc]
            self.kubectl("label", "node", node, f"{_LANE}={self.lane.name}", "--overwrite")
            self.ready(node)

    def kubelet(self, node: str, action: str) -> None:
        """action: stop | start. Containers go on without it."""
        self.script("node.sh", "kubelet", node, action)

    def net(self, node: str, action: str) -> None:
        """action: down | up. Down: no machine reaches the node and its pods."""
        self.script("node.sh", "net", node, action)

    def crash(self, node: str) -> None:
        """Kills the kubelet, containerd and every container of the node at once."""
        self.script("node.sh", "crash", node)

    def replace(self, node: str) -> None:
        """Makes the node again, empty but for the images; the way back from a crash."""
        self.script("node.sh", "remove", node)
        self.script("node.sh", "add", node)
        self.ready(node)

    @contextmanager
    def policies_enforced(self) -> Iterator[None]:
        """On the lane's nodes, for pods of every namespace."""
        program = self.script("netpol.sh", timeout=1500).strip()
        with ExitStack() as stack:
            for node in self.lane.nodes:
                command = ["nsenter", f"--net=/run/netns/octavo-{node}", "--", program]
                log = stack.enter_context((self.state / "log" / f"{node}-netpol.log").open("w"))
                stack.enter_context(running([*command, "--kubeconfig", str(self.kubeconfig), "--node", node], log))
            yield

    def ready(self, node: str, is_ready: bool = True, timeout_s: float = PATIENCE_S) -> None:
        """Waits until the node is Ready, or no longer is."""
        condition = "Ready=true" if is_ready else "Ready=unknown"
        self.kubectl(
            "wait", f"node/{node}", f"--for=condition={condition}", f"--timeout={timeout_s}s", timeout=timeout_s + 10
        )

    def push(self, image: str) -> None:
        """Sends an image that buildah holds to all nodes: only the layers that they lack."""
        self.script("push.sh", image, timeout=300)


def wait_until(probe: Callable[[], T], timeout_s: float, what: str) -> T:
    """The first true value of probe(); an AssertionError that names `what` and the last value if it takes longer."""
    bound = Bound(timeout_s)
    while not (value := probe()):
        assert not bound.over, f"{what}: not within {bound}, last seen: {value!r}"
        time.sleep(LOOK_S)
    bound.kept()
    return value


@contextmanager
def running(command: list[str], output: TextIO | int) -> Iterator[subprocess.Popen[bytes]]:
    """A process until the context ends, which it is asked to notice. output: of both streams."""
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        process.kill()
        process.wait(10)


@contextmanager
def api_server() -> Iterator[Bed]:
    state, binaries = places("api")
    bed = Bed("api", state, binaries, ApiClient(state))
    with _session(bed, "lane-api"):
        yield bed


@contextmanager
def cluster(lane: Lane) -> Iterator[Cluster]:
    """Our images are built from the tree as it is, and are on every node."""
    state, binaries = places("cluster")
    bed = Cluster("cluster", state, binaries, ApiClient(state), lane)
    with _session(bed, f"lane-{lane.name}", prepare=lambda: bed.script("images.sh", timeout=1500)):
        yield bed


def missing(mode: str) -> str | None:
    """Why this machine has no bed, or None. mode: api, cluster, or network: the API server's beside a network."""
    _, binaries = places("api" if mode == "network" else mode)
    if not (binaries / ".complete").exists():
        return f"its programs are not built: run {SCRIPTS}/deps.sh and {SCRIPTS}/build.sh"
    if shutil.which("openssl") is None:
        return f"openssl is not installed: run {SCRIPTS}/deps.sh"
    if mode == "api":
        return None
    if os.geteuid() != 0:
        return f"a {mode} needs root"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        return f"a {mode} needs network namespaces, and this machine does not let us make one"
    needed = ("iptables", "ipset", "ip") if mode == "network" else TOOLS
    tools = [tool for tool in needed if shutil.which(tool) is None]
    return f"{', '.join(tools)} not installed: run {SCRIPTS}/deps.sh" if tools else None


def require(mode: str) -> None:
    """Skips the test where there can be no bed; fails it where OCTAVO_REQUIRE_BED=1 says that there must be one."""
    if (reason := missing(mode)) is None:
        return
    if os.environ.get("OCTAVO_REQUIRE_BED") == "1":
        pytest.fail(f"no test bed, but OCTAVO_REQUIRE_BED=1: {reason}", pytrace=False)
    pytest.skip(f"no test bed: {reason}")


@pytest.fixture(scope="session", name="api_server")
def api_server_fixture() -> Iterator[Bed]:
    require("api")
    with api_server() as bed:
        yield bed


@contextmanager
def _session(bed: Bed, name: str, prepare: Callable[[], object] = lambda: None) -> Iterator[None]:
    """The bed, for one session of this name at a time: a second one waits. The first in starts it, the last out stops
    it, unless it was there before."""
    folder = bed.state.parent
    folder.mkdir(parents=True, exist_ok=True)
    ours = bed.state / "started-by-tests"
    with locked(folder / f"{name}.lock"), open(folder / f"{bed.mode}.users", "w") as users:
        with locked(folder / f"{bed.mode}.lock"):
            prepare()
            fcntl.flock(users, fcntl.LOCK_SH)
            if not _answers(bed):
                bed.script("down.sh")
                bed.script("up.sh", timeout=300)
                ours.touch()
            if isinstance(bed, Cluster):
                bed.claim_nodes()
        try:
            yield
        finally:
            with locked(folder / f"{bed.mode}.lock"):
                fcntl.flock(users, fcntl.LOCK_UN)
                if ours.exists() and _try_lock(users):
                    bed.script("down.sh")


@contextmanager
def locked(path: Path, timeout_s: float = 1800) -> Iterator[None]:
    with open(path, "w") as file:
        end = time.monotonic() + timeout_s
        while not _try_lock(file):
            if time.monotonic() > end:
                raise BedError(f"another session has held {path} for {timeout_s} s: end it, then try again")
            time.sleep(0.5)
        yield


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _answers(bed: Bed) -> bool:
    if not bed.kubeconfig.exists():
        return False
    try:
        bed.kubectl("get", "--raw", "/readyz", timeout=5)
    except BedError:
        return False
    return True


def places(mode: str) -> tuple[Path, Path]:
    """The state folder of a mode, and the folder of the programs."""
    line = '. "$0"/env.sh && printf "%s\\n" "$STATE" "$BIN"'
    text = _run(["bash", "-c", line, str(SCRIPTS)], env=os.environ | {"BED_MODE": mode}, timeout=PATIENCE_S)
    state, binaries = text.splitlines()
    return Path(state), Path(binaries)


def _objects(manifest: dict[str, Any] | str | Path) -> list[dict[str, Any]]:
    if isinstance(manifest, Path):
        manifest = manifest.read_text()
    return [item for item in yaml.safe_load_all(manifest) if item] if isinstance(manifest, str) else [manifest]


def _run(command: list[str], env: dict[str, str], timeout: float, stdin: str | None = None) -> str:
    try:
        done = subprocess.run(
            command, env=env, input=stdin, timeout=timeout, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BedError(f"{' '.join(command)}: not done after {timeout} s") from error
    if done.returncode != 0:
        raise BedError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-4000:] or done.stdout[-4000:]}")
    return done.stdout
