"""bundled://NAME: the model that comes with Octavo, converted at its first use."""

from pathlib import Path

from octavo import bundled
from octavo.shared.model_uri import ModelUri
from octavo.worker.errors import NOT_FOUND, ModelError
from octavo.worker.models.sources.source import Progress


class BundledModel:
    def folder(self, uri: ModelUri, progress: Progress | None) -> Path:
        try:
            return bundled.ensure(uri.rest, progress=progress)
        except bundled.BundledError as error:
            raise ModelError(NOT_FOUND, uri.text, str(error)) from error
        except OSError as error:
            text = f"cannot write the converted model to the cache: {error}"
            raise ModelError(NOT_FOUND, uri.text, text) from error
