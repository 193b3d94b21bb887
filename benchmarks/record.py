"""Where a figure comes from: the machine, the versions and the commit, written beside it."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


def machine(packages: Sequence[str] = ()) -> dict[str, Any]:  # Any: JSON
    """load: the one-minute load average at this moment; a figure taken on a busy machine says so."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "commit": commit or "unknown",
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    vectors = next((line.split() for line in lines if line.startswith("flags")), [])
    widest = next((name.upper() for name in ("avx512f", "avx2", "avx") if name in vectors), "no AVX")
    return f"{names[0] if names else platform.machine()} ({widest})"


def write(path: Path, made_on: dict[str, Any], results: object) -> None:
    """Any: JSON. Prints where it went."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": made_on, "results": results}, indent=1) + "\n")
    print(f"written to {path}")
