"""Whether the host has memory for what a rank is about to take of it. No torch.

At a container's limit the kernel kills a process; it does not refuse memory. So what is large is compared before, with
what is left below the limit (control groups of version 2 or 1) and with what the machine has.
"""

from pathlib import Path

from octavo.worker.devices.memory import CGROUP, memory_limit

MEMINFO = Path("/proc/meminfo")
SPARE_BYTES = 256 << 20  # left to everything else
_USED = ("memory.current", "memory/memory.usage_in_bytes")
_STATISTICS = ("memory.stat", "memory/memory.stat")
_FILE_PAGES = {"inactive_file", "active_file"}  # given back before a process is killed


def shortage(needed: int, root: Path = CGROUP, meminfo: Path = MEMINFO) -> str:
    """Why `needed` bytes more are too many, with the figures and what to do; empty when there is room, or nothing says
    that there is none."""
    limit, wanted = memory_limit(root), needed + SPARE_BYTES
    left = None if limit is None else _left(limit, root)
    if limit is not None and left is not None and wanted > left:
        enough = -(-(limit - left + wanted) >> 30)
        return (
            f"of the memory limit of {_gib(limit)} {_gib(max(0, left))} are left; raise it to {enough} GiB or more "
            "(the container's resources.limits.memory)"
        )
    free = _values(meminfo).get("MemAvailable:")
    if free is not None and wanted > free << 10:
        return f"the machine has {_gib(free << 10)} available; end what uses the rest, or give it more memory"
    return ""


def _left(limit: int, root: Path) -> int | None:
    """Bytes below the limit, with what the kernel gives back when they are asked for."""
    pages = _first(root, _STATISTICS)
    # Version 1 has the values of this control group alone beside totals with the ones below it, as version 2 counts.
    files = sum(pages.get(f"total_{name}", pages.get(name, 0)) for name in _FILE_PAGES)
    for name in _USED:
        try:
            return limit - int((root / name).read_text()) + files
        except (OSError, ValueError):
            continue
    return None


def _first(root: Path, names: tuple[str, ...]) -> dict[str, int]:
    return next((values for name in names if (values := _values(root / name))), {})


def _values(file: Path) -> dict[str, int]:
    """Of lines `name value`; empty when the file cannot be read."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines]
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdecimal()}


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
