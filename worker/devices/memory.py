"""How much memory KV may take on a CPU, how many threads there are, and what context then fits. No torch.

A container's limits are its control group's: version 2 (memory.max, cpu.max) or version 1.
"""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
DEFAULT_KV_BYTES = 1 << 30
_UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2^63


def kv_cache_bytes(asked: int | None, root: Path = CGROUP, ranks: int = 1) -> int:
    """Of one rank: what was asked for, else a quarter of the memory limit or 1 GiB, shared by the pod's `ranks`."""
    if asked is not None:
        return asked
    limit = memory_limit(root)
    return (DEFAULT_KV_BYTES if limit is None else limit // 4) // ranks


def memory_limit(root: Path = CGROUP) -> int | None:
    """Bytes that this container may use; None without a limit."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        value = _number(root / name)
        if value is not None and value < _UNLIMITED:
            return value
    return None


def threads(asked: int | None, root: Path = CGROUP, ranks: int = 1) -> int:
    """Of one rank: what was asked for, else the CPU quota rounded up, at most the CPUs that this process may run on,
    shared by the pod's `ranks`."""
    if asked is not None:
        return asked
    cpus = len(os.sched_getaffinity(0))
    quota = _cpu_quota(root)
    return max(1, (cpus if quota is None else min(cpus, -int(-quota // 1))) // ranks)


def _cpu_quota(root: Path) -> float | None:
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass  # not version 2
    v1_quota, v1_period = (_number(root / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return v1_quota / v1_period if v1_quota and v1_period and v1_quota > 0 else None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None
