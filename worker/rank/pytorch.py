"""PyTorch, imported without what only its compiler asks for: three quarters of a second of a CPU less.

`torch._meta_registrations` brings a thousand functions in Python that tell shapes without numbers, and modules of
operators that no kernel uses. `import torch` ends by importing it, and uses nothing of it. Here it is imported
when something of it is wanted, as by the compiler.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

SHAPES = "torch._meta_registrations"


class _Later(ModuleType):
    """In place of SHAPES, until something of it is wanted."""

    def __getattr__(self, name: str) -> Any:  # Any: whatever it has
        if name.startswith("__"):  # the import system asks every module for such names
            raise AttributeError(name)
        if sys.modules.get(SHAPES) is self:
            del sys.modules[SHAPES]
        return getattr(import_module(SHAPES), name)


def load() -> None:
    """Import it; without effect where it is imported already."""
    if "torch" not in sys.modules:
        sys.modules[SHAPES] = _Later(SHAPES)
    import torch  # noqa: F401
