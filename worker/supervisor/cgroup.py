"""The kernel's count of processes it killed for memory in this container: what tells an OOM kill from any other.

A container sees its own control group at the root of /sys/fs/cgroup: `memory.events` in version 2,
`memory/memory.oom_control` in version 1. Outside a container the files may be absent; the count is then 0.
"""

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_FILES = ("memory.events", "memory/memory.oom_control")


def oom_kills(root: Path = ROOT) -> int:
    """How many processes the kernel has killed for memory so far."""
    for name in _FILES:
        try:
            text = (root / name).read_text()
        except OSError:
            continue
        return parse_oom_kills(text)
    return 0


def parse_oom_kills(text: str) -> int:
    """The value of the line `oom_kill N`; 0 when there is none."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return 0
