"""`octavo ...` as on a machine with a GPU whose installation lacks the kernels, and so whatever it starts.

Two things differ from this machine: the driver's answer, that there is a GPU; and the folder of the libraries, an empty
one, which makes no difference where the CUDA kernels were not built anyway.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from support.processes.patched import ImportHooks, environment


def main(argv: list[str]) -> int:
    """`octavo ARGV`."""
    from support.processes import commands

    with tempfile.TemporaryDirectory() as empty:
        os.environ.update(environment(__name__, empty))
        install(empty)
        return commands.main(argv)


def install(libraries: str) -> None:
    """libraries: an empty folder."""
    hooks: dict[str, Callable[[ModuleType], None]] = {
        "octavo.kernels.cuda.library": lambda module: setattr(module, "LIBRARIES", Path(libraries)),
        "octavo.worker.devices.gpu": _one_gpu,
    }
    for name, change in hooks.items():
        if name in sys.modules:
            change(sys.modules[name])
    ImportHooks({}, {name: change for name, change in hooks.items() if name not in sys.modules}).install()


def _one_gpu(gpu: ModuleType) -> None:
    gpu.missing = lambda: ""  # type: ignore[attr-defined]
    gpu.count = lambda: 1  # type: ignore[attr-defined]
