"""`octavo worker` in processes that are forked with their imports in them, PyTorch among them.

Those of a supervisor's later lives come so only where tests wish it: what it starts anew is started as a user's is.
"""

import os
import subprocess
from types import SimpleNamespace

from support.forked import preload
from support.spares import MODULES, WORKER, Spares

from octavo.worker import children, cradle
from octavo.worker.main import main as worker

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as a supervisor tells its nursery: what forks has one thread
preload(*MODULES)


def main(argv: list[str]) -> int:
    """argv: what follows `octavo worker`."""
    start = SimpleNamespace(DEVNULL=subprocess.DEVNULL, Popen=Spares(WORKER).popen)
    children.subprocess = cradle.subprocess = start  # type: ignore[assignment]
    return worker(argv)
