"""Processes that are changed at chosen points, and so is whatever they start."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "patched"  # of the sitecustomize that interpreters read


def environment(module: str, argument: str) -> dict[str, str]:
    """What has each interpreter that starts with it call `module.install(argument)`."""
    path = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "OCTAVO_TEST_PATCH": f"{module}:{argument}"}


class ImportHooks(importlib.abc.MetaPathFinder):
    """before: called when a module of that name is about to be imported. after: with the module, once it is."""

    def __init__(
        self, before: Mapping[str, Callable[[], None]], after: Mapping[str, Callable[[ModuleType], None]]
    ) -> None:
        self._before, self._after = dict(before), dict(after)

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if (come := self._before.pop(name, None)) is not None:
            come()
        if (change := self._after.pop(name, None)) is None:
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None, name
        execute = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec
