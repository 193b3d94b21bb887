"""Real operator processes against a real API server."""

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.cluster.bed import Bed, wait_until
from support.patience import PATIENCE_S
from support.processes.forked import Forked, preload
from support.processes.ports import free_port

preload("octavo.operator.main", "octavo.operator.kopf_handlers")

AGENTS = ("octavo-operator", "kopf")


def service(name: str = "chat", **spec: Any) -> dict[str, Any]:
    """A small InferenceService."""
    return {
        "apiVersion": "octavo.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"model": {"uri": "bundled://smollm2-135m-instruct"}, **spec},
    }


def _main(argv: list[str]) -> int:
    from octavo.operator.main import main

    return main(argv)


class Operator:
    """One `octavo operator` process; its log is a file."""

    def __init__(self, kubeconfig: Path, folder: Path, *flags: str) -> None:
        self.health, self.metrics = free_port(), free_port()
        self.log = folder / f"operator-{self.health}.log"
        ports = ["--health", f"127.0.0.1:{self.health}", "--metrics", f"127.0.0.1:{self.metrics}"]
        self.log.touch()
        self.process = Forked(_main, [*flags, *ports], {"KUBECONFIG": str(kubeconfig)}, self.log)

    def ready(self) -> "Operator":
        wait_until(
            lambda: self.get("/readyz") == 200, PATIENCE_S, f"operator ready, log:\n{self.log.read_text()[-2000:]}"
        )
        return self

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}{path}", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    @property
    def leads(self) -> bool:
        return self.metric("octavo_operator_leader") == 1

    def metric(self, name: str) -> float:
        """The value of a metric without labels; 0 while the process does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=2) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


@contextmanager
def operator(kubeconfig: Path, folder: Path, namespace: str, *flags: str) -> Iterator[Operator]:
    """An operator of one namespace, its Lease there too."""
    started = Operator(kubeconfig, folder, "--namespace", namespace, "--lease-namespace", namespace, *flags)
    try:
        yield started.ready()
    finally:
        started.kill()


def condition(bed: Bed, namespace: str, kind: str, name: str = "chat") -> dict[str, Any]:
    """The condition of a service, {} if it has none such."""
    found = bed.get("infsvc", name, namespace) or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {})


def writes(bed: Bed, namespace: str, offset: int = 0) -> list[str]:
    """What operators wrote in a namespace according to the audit log, from a byte offset on; Leases left out."""
    return _writes(bed, namespace, offset)[0]


def _writes(bed: Bed, namespace: str, offset: int) -> tuple[list[str], int]:
    """The same, and the offset of the first line that is not yet whole."""
    found = []
    with bed.audit_log.open("rb") as log:
        log.seek(offset)
        for line in log:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            if namespace.encode() in line and (write := _write(json.loads(line), namespace)):
                found.append(write)
    return found, offset


def _write(event: dict[str, Any], namespace: str) -> str:
    """The audited request in words, "" if it is no write of an operator in the namespace."""
    about = event.get("objectRef") or {}
    by_operator = any(agent in event.get("userAgent", "") for agent in AGENTS)
    is_write = event["verb"] not in ("get", "list", "watch")
    if by_operator and is_write and about.get("namespace") == namespace and about.get("resource") != "leases":
        return f"{event['verb']} {about.get('resource')}/{about.get('name')} {about.get('subresource', '')}"
    return ""


def settled(bed: Bed, namespace: str, quiet_s: float = 3.0, timeout_s: float = PATIENCE_S) -> None:
    """Waits until no operator has written in the namespace for a while, after it wrote at least once."""
    end, since, offset, seen = time.monotonic() + timeout_s, time.monotonic(), 0, list[str]()
    while time.monotonic() < end:
        news, offset = _writes(bed, namespace, offset)
        if news:
            seen, since = [*seen, *news], time.monotonic()
        elif seen and time.monotonic() - since > quiet_s:
            return
        time.sleep(0.3)
    raise AssertionError(f"namespace {namespace} does not come to rest, last writes: {seen[-5:]}")
