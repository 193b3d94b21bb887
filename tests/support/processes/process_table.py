"""What the process table says."""

from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether it is there and has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
