"""`octavo ...` whose rank 1, on a CPU, is short of memory when it sleeps or wakes, as long as a test says so.

To sleep it then has to copy more to the host than any host has; for a wake it gets no memory for KV.
"""

import os
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from support.processes.patched import ImportHooks, environment

RANK = 1
_EVERYTHING = 1 << 60  # bytes


class Shortage:
    """folder: of the worker's sockets."""

    def __init__(self, folder: Path) -> None:
        self.to_sleep, self.to_wake = folder / "short-to-sleep", folder / "short-to-wake"


def main(folder: str, argv: list[str]) -> int:
    """`octavo ARGV`."""
    from support.processes import commands

    os.environ.update(environment(__name__, folder))
    return commands.main(argv)


def install(folder: str) -> None:
    ImportHooks({}, {"octavo.worker.runner.cpu.runner": partial(_change, Shortage(Path(folder)))}).install()


def _change(shortage: Shortage, module: ModuleType) -> None:
    class ShortRunner(module.Runner):  # type: ignore[name-defined,misc]
        def __init__(self, config: Any, *arguments: Any) -> None:
            self._rank = config.position.rank
            super().__init__(config, *arguments)

        @property
        def copy_bytes(self) -> int:
            return _EVERYTHING if self._rank == RANK and shortage.to_sleep.exists() else 0

        def _new_pools(self) -> Any:
            if self._rank == RANK and shortage.to_wake.exists():
                raise MemoryError
            return super()._new_pools()

    module.Runner = ShortRunner  # type: ignore[attr-defined]
