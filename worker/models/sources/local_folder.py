"""A folder of this machine: file:///models/llama, /models/llama or ./llama."""

from pathlib import Path

from octavo.shared.model_uri import ModelUri
from octavo.worker.errors import INVALID, NOT_FOUND, ModelError, unreadable
from octavo.worker.models.sources.source import Progress


class LocalFolder:
    def folder(self, uri: ModelUri, progress: Progress | None) -> Path:
        if uri.scheme is not None and uri.host not in ("", "localhost"):
            raise ModelError(INVALID, uri.text, "a file uri has three slashes: file:///path")
        path = uri.path
        try:
            if not path.is_dir():
                raise ModelError(NOT_FOUND, uri.text, "no such folder on this machine")
            return path.resolve()
        except OSError as error:
            raise unreadable(uri.text, error) from error
