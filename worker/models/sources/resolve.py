"""From a model's uri to its folder on this machine: the source of each scheme that octavo.shared.model_uri
lists."""

from collections.abc import Mapping
from pathlib import Path

from octavo.shared.model_uri import LOCAL, parse
from octavo.worker.errors import INVALID, ModelError
from octavo.worker.models.sources.bundled_model import BundledModel
from octavo.worker.models.sources.local_folder import LocalFolder
from octavo.worker.models.sources.mounted_claim import MountedClaim
from octavo.worker.models.sources.source import Progress, Source

SOURCES: Mapping[str | None, Source] = {
    None: LocalFolder(),
    "bundled": BundledModel(),
    "file": LocalFolder(),
    "pvc": MountedClaim(),
}


def resolve(text: str, progress: Progress | None = None) -> Path:
    """Return the model's folder, converting the bundled model at its first use. Raises ModelError."""
    uri = parse(text)
    if uri.scheme not in SOURCES:
        raise ModelError(INVALID, text, f"the scheme {uri.scheme!r} is not supported; use {LOCAL} or a path")
    return SOURCES[uri.scheme].folder(uri, progress)
