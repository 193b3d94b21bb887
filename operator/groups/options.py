"""The operator's flags that determine the objects it creates."""

import argparse
import posixpath
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Defaults of pods. A group keeps the options that it was created with until its revision changes."""

    worker_image: str = "ghcr.io/octavo/worker:0.1.0"
    router_image: str = "ghcr.io/octavo/router:0.1.0"
    image_pull_policy: str = "IfNotPresent"
    host_path_allow: tuple[str, ...] = ()  # folders of nodes that file:// models may be in; (): none
    image_allow: tuple[str, ...] = ()  # registries and repositories of spec.image, see `image_allowed`; (): all
    api_server_ports: tuple[int, ...] = (443, 6443)  # of the API server's pods or hosts, to which routers may connect
    operator_namespace: str = "octavo-system"  # of the operator's pods, which connect to the workers' status port

    def image_allowed(self, image: str) -> bool:
        """True if an entry of `image_allow` is the image's registry, a folder of it, its repository, or the image.

        Images are compared as they are written: `octavo/worker` and `docker.io/octavo/worker` differ here.
        """
        if not self.image_allow or image == self.worker_image:
            return True
        return any(image == entry or _begins(image, entry.rstrip("/")) for entry in self.image_allow)

    def host_path_allowed(self, path: str) -> bool:
        """True if the folder is an entry of `host_path_allow`, or in one."""
        folder = posixpath.normpath("/" + path.lstrip("/"))
        entries = [posixpath.normpath("/" + entry.lstrip("/")) for entry in self.host_path_allow]
        return any(entry in ("/", folder) or folder.startswith(f"{entry}/") for entry in entries)


def add_allow_lists(parser: argparse.ArgumentParser) -> None:
    """Flags of `octavo operator` and `octavo plan` that limit services."""
    parser.add_argument(
        "--allow-host-path",
        action="append",
        default=[],
        metavar="FOLDER",
        help="allow file:// models in this folder of the nodes (repeatable; default: none)",
    )
    parser.add_argument(
        "--allow-image",
        action="append",
        default=[],
        metavar="PREFIX",
        help="allow spec.image of this registry or repository, e.g. ghcr.io/octavo (repeatable; default: all images)",
    )


def _begins(image: str, entry: str) -> bool:
    """True if the image continues the entry at a boundary. A colon begins a tag only behind the last slash: else it
    begins a port, and the entry is part of another registry's name."""
    rest = image.removeprefix(entry)
    if rest == image:
        return False
    return rest.startswith(("/", "@")) or (rest.startswith(":") and "/" not in rest)
