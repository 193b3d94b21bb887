"""Volumes that hold a model: a class for each scheme whose folder the operator mounts. Others a worker finds itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from octavo.operator.specs.common import Json
from octavo.shared.model_uri import ModelUri, parse

MODELS = "/models"  # where the volume is mounted


@dataclass(frozen=True, slots=True)
class Mounted:
    """volume: its source, as a pod has it. uri: of the model inside the worker container."""

    volume: Json
    uri: str


class Volume(Protocol):
    def mounted(self, uri: ModelUri) -> Mounted:
        """uri: one that the CRD's rules accept."""


class Claim:
    """pvc://CLAIM/PATH: the claim is mounted, and the model is a folder of it."""

    def mounted(self, uri: ModelUri) -> Mounted:
        claim, _, path = uri.rest.partition("/")
        source = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        return Mounted(source, f"file://{MODELS}/{path}".rstrip("/"))


class HostFolder:
    """file:///PATH: the folder itself is mounted."""

    def mounted(self, uri: ModelUri) -> Mounted:
        # Directory: the kubelet refuses a path that is missing instead of making an empty folder of it.
        return Mounted({"hostPath": {"path": unquote(uri.rest), "type": "Directory"}}, f"file://{MODELS}")


VOLUMES: Mapping[str | None, Volume] = {"pvc": Claim(), "file": HostFolder()}


def mounted(text: str) -> Mounted | None:
    """None where there is nothing to mount."""
    uri = parse(text)
    return VOLUMES[uri.scheme].mounted(uri) if uri.scheme in VOLUMES else None
