"""From a model's uri to its folder on this machine. No torch.

bundled://smollm2-135m-instruct    file:///models/llama    /models/llama    ./llama
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from octavo import bundled
from octavo.worker.errors import INVALID, NOT_FOUND, ModelError, unreadable


def resolve(uri: str, progress: Callable[[int], None] | None = None) -> Path:
    """Return the model's folder, converting the bundled model at its first use. Raises ModelError."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return _folder(uri, Path(uri).expanduser())
    if scheme == "bundled":
        try:
            return bundled.ensure(rest, progress=progress)
        except bundled.BundledError as error:
            raise ModelError(NOT_FOUND, uri, str(error)) from error
        except OSError as error:
            raise ModelError(NOT_FOUND, uri, f"cannot write the converted model to the cache: {error}") from error
    if scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise ModelError(INVALID, uri, "a file uri has three slashes: file:///path")
        return _folder(uri, Path(unquote(parts.path)))
    raise ModelError(INVALID, uri, f"the scheme {scheme!r} is not supported; use bundled://, file:// or a path")


def _folder(uri: str, path: Path) -> Path:
    try:
        if not path.is_dir():
            raise ModelError(NOT_FOUND, uri, "no such folder on this machine")
        return path.resolve()
    except OSError as error:
        raise unreadable(uri, error) from error
