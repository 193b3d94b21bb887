"""Folders in the temporary directory that are removed at the end, or by the next of their kind after a SIGKILL.

Each holds a file that its process has locked: the kernel drops the lock when the process ends, in whatever way.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK = "lock"


@contextmanager
def scratch(prefix: str, directory: str | None = None) -> Iterator[Path]:
    """A new folder; removes folders of the same prefix and user whose processes have ended. Raises OSError."""
    place = Path(tempfile.gettempdir() if directory is None else directory)
    for left in place.glob(f"{prefix}*"):
        _remove_left(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    # Locked before it has its name: a folder without that file, or with it locked, is in use.
    unnamed = folder / f".{_LOCK}"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(folder / _LOCK)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_left(folder: Path) -> None:
    """Remove a folder whose process has ended; on an error the folder stays."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its process runs
        return
    finally:
        os.close(lock)
