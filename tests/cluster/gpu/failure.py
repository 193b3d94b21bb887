"""What is printed when a phase fails: everything that says why."""

import re
from collections.abc import Callable
from pathlib import Path

from support.cluster.bed import Bed

SELECTORS = ("app.kubernetes.io/name=octavo-operator", "octavo.dev/component", "octavo-bed=probe")
OBJECTS = (
    "get nodes,pods -A -o wide",
    "get infsvc -A -o yaml",
    "describe pods -A",
    "describe node",
    "get events -A --sort-by=.lastTimestamp",
)


def tell(bed: Bed) -> None:
    """The cluster's objects, the logs of our pods and of the node's and the cluster's programs."""
    for words in OBJECTS:
        _show(f"kubectl {words}", lambda words=words: bed.kubectl(*words.split(), timeout=20)[-12_000:])  # type: ignore[misc]
    for selector in SELECTORS:
        words = ["logs", "-n", "octavo", "-l", selector, "--tail=60", "--prefix", "--all-containers"]
        _show(f"logs of {selector}", lambda words=words: bed.kubectl(*words, timeout=20))  # type: ignore[misc]
    for log in sorted((bed.state / "log").glob("*.log")):
        if log.name != "audit.log":
            _show(log.name, lambda log=log: _end(log))  # type: ignore[misc]


def _end(log: Path) -> str:
    """The last errors, and the last lines."""
    lines = [line[:600] for line in log.read_text(errors="replace").splitlines()]
    errors = [line for line in lines if re.match(r"[EF]\d{4} |.*level=(error|fatal)|.*panic|.*rror:", line)]
    return "\n".join([*errors[-15:], "...", *lines[-12:]])


def _show(what: str, read: Callable[[], str]) -> None:
    print(f"\n======== {what}", flush=True)
    try:
        print(read(), flush=True)
    except Exception as error:  # the next one may tell
        print(f"{type(error).__name__}: {error}", flush=True)
