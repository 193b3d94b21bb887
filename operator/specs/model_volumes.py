"""Volumes that hold a model: a class for each scheme whose folder the operator mounts. Others a worker has itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from octavo.operator.specs.common import Json
from octavo.shared.model_uri import CLAIM_FOLDER, ModelUri, parse

MODELS = CLAIM_FOLDER  # where the volume is mounted


@dataclass(frozen=True, slots=True)
class Mounted:
    """volume: its source, as a pod has it. uri: of the model for the worker."""

    volume: Json
    uri: str


class Volume(Protocol):
    def mounted(self, uri: ModelUri) -> Mounted:
        """uri: one that the CRD's rules accept."""


class Claim:
    """pvc://CLAIM/PATH: the claim is mounted, and the worker finds the folder in it."""

    def mounted(self, uri: ModelUri) -> Mounted:
        claim = uri.rest.partition("/")[0]
        return Mounted({"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}, uri.text)


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
