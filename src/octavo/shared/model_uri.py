"""A model's uri, as a resource, the operator's flags for workers and the command line have it; and the schemes.

    bundled://smollm2-135m-instruct    pvc://claim/llama    file:///models/llama    /models/llama    ./llama

A scheme is a row here, the class in worker/models/sources that finds its folder and, where the operator mounts the
folder, a class in operator/specs/model_volumes.py. The CRD's rule and texts follow from this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

# A name is a DNS-1123 name; a path has no empty part and no `..`, so that it cannot leave its volume. Other characters
# are escaped as in any uri (%20), but for `.`, `/` and control characters.
NAME = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
PATH = r"(/([A-Za-z0-9_.~-]|%(2[0-9A-Da-d]|[3-9A-Fa-f][0-9A-Fa-f]))+)"


@dataclass(frozen=True, slots=True)
class ModelUri:
    """scheme: None of a plain path. rest: what follows ://, or the path."""

    text: str
    scheme: str | None
    rest: str

    @property
    def host(self) -> str:
        return urlsplit(self.text).netloc

    @property
    def path(self) -> Path:
        """Of a folder: a plain path, or a uri's, with its escapes read."""
        if self.scheme is None:
            return Path(self.rest).expanduser()
        return Path(unquote(urlsplit(self.text).path))


@dataclass(frozen=True, slots=True)
class Scheme:
    """pattern: of what follows ://, for Python and for CEL. form: how it is written; example: in the CRD's text, with
    what it is. local: whether the folder is found without a cluster, too."""

    pattern: str
    form: str
    example: str
    local: bool


SCHEMES: Mapping[str, Scheme] = {
    "bundled": Scheme(NAME, "bundled://NAME", "bundled://smollm2-135m-instruct (in the worker image)", local=True),
    "pvc": Scheme(
        f"{NAME}{PATH}*/?",
        "pvc://CLAIM/PATH",
        "pvc://CLAIM/PATH (a folder of a PersistentVolumeClaim, mounted read-only)",
        local=False,
    ),
    "file": Scheme(
        f"{PATH}+/?",
        "file:///PATH",
        "file:///PATH (a folder of the node, if the operator allows it by --allow-host-path)",
        local=True,
    ),
}
PATTERNS = tuple(f"^{name}://{scheme.pattern}$" for name, scheme in SCHEMES.items())  # of uris in a resource
LOCAL = ", ".join(f"{name}://" for name, scheme in SCHEMES.items() if scheme.local)  # for messages
CLAIM_FOLDER = "/models"  # where the operator mounts a claim, and a worker finds it


def parse(text: str) -> ModelUri:
    """Any text is one; whether its scheme exists and its folder does is for the source to say."""
    scheme, separator, rest = text.partition("://")
    return ModelUri(text, scheme, rest) if separator else ModelUri(text, None, text)


def forms() -> str:
    """How uris of a resource are written."""
    *first, last = (scheme.form for scheme in SCHEMES.values())
    return f"{', '.join(first)} or {last}"


def described() -> str:
    """The schemes and what they are."""
    *first, last = (scheme.example for scheme in SCHEMES.values())
    return f"{', '.join(first)}, or {last}"
