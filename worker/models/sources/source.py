"""What a source of models is."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from octavo.shared.model_uri import ModelUri

Progress = Callable[[int], None]  # percent done


class Source(Protocol):
    def folder(self, uri: ModelUri, progress: Progress | None) -> Path:
        """The model's folder on this machine, made first if need be. Raises ModelError."""
