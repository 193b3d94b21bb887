"""pvc://CLAIM/PATH: a folder of a PersistentVolumeClaim, which the operator mounts into the worker's container."""

from pathlib import Path
from urllib.parse import unquote

from octavo.shared.model_uri import CLAIM_FOLDER, LOCAL, ModelUri
from octavo.worker.errors import INVALID, NOT_FOUND, ModelError, unreadable
from octavo.worker.models.sources.source import Progress

SHOWN = 10  # folders of the claim, in a message


class MountedClaim:
    def __init__(self, root: Path = Path(CLAIM_FOLDER)) -> None:
        self._root = root

    def folder(self, uri: ModelUri, progress: Progress | None) -> Path:
        claim, _, path = uri.rest.partition("/")
        try:
            if not self._root.is_dir():
                raise ModelError(
                    INVALID, uri.text, f"claims are mounted only in pods of a cluster; use {LOCAL} or a path"
                )
            at = self._root
            for name in (unquote(part) for part in path.split("/") if part):
                if not (at / name).is_dir():
                    raise ModelError(NOT_FOUND, uri.text, _missing(f"the claim {claim}", at, name, self._root))
                at /= name
            return at.resolve()
        except OSError as error:
            raise unreadable(uri.text, error) from error


def _missing(claim: str, at: Path, name: str, root: Path) -> str:
    """Such as: the claim models has no folder absent; it has my-llama, other."""
    where = claim if at == root else f"the folder {at.relative_to(root)} of {claim}"
    if (at / name).exists():
        return f"{name} of {where} is not a folder"
    found = sorted(entry.name for entry in at.iterdir() if entry.is_dir() and entry.name != "lost+found")
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{where} has no folder {name}; it has {', '.join(found[:SHOWN]) or 'no folders'}{more}"
