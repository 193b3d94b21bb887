"""Where a soak's processes keep files: a TMPDIR of their own, and in a mount namespace of our own small file systems,
which can be filled without harm to other processes."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

SHARED = Path("/dev/shm")
TMPDIR_MIB, SHARED_MIB = 8, 64
_CLONE_NEWNS = 0x20000


@dataclass(frozen=True, slots=True)
class Places:
    """private: both are file systems of this process and its children alone."""

    tmpdir: Path
    private: bool

    def path(self, name: str) -> Path:
        """Of a fault's target."""
        return self.tmpdir if name == "TMPDIR" else Path(name)

    def files(self) -> tuple[str, ...]:
        return _files(self.tmpdir)

    def shared_files(self) -> tuple[str, ...]:
        """None where others have theirs there as well."""
        return _files(SHARED) if self.private else ()


@contextmanager
def prepared(folder: Path, private: bool) -> Iterator[Places]:
    """private: this process has a mount namespace of its own (`isolate`)."""
    tmpdir = folder / "tmp"
    tmpdir.mkdir(parents=True)
    small = ((tmpdir, TMPDIR_MIB), (SHARED, SHARED_MIB)) if private else ()
    with ExitStack() as mounts:
        for path, mib in small:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(path)], check=True)
            mounts.callback(subprocess.run, ["umount", "--lazy", str(path)], check=True)
        yield Places(tmpdir, private)


def isolate() -> bool:
    """Give this process and its children mounts of their own; False where it may not, as any user but root."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    made = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True)
    return made.returncode == 0


def _files(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*")))
