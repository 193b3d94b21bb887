"""A step's rows on the device, as the layers' attention needs them: in buffers of fixed size, whose contents change."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from octavo.kernels.cuda.attention.decode import DecodePlan
from octavo.kernels.cuda.attention.prefill import PrefillTiles
from octavo.kernels.cuda.step_layout.steps import StepBuffers


@dataclass(frozen=True, slots=True)
class WorkPartition:
    """Of the attention of all layers with one window. tiles: None when the step has no rows of several tokens."""

    decode: DecodePlan
    tiles: PrefillTiles | None


@dataclass(frozen=True, slots=True)
class DevicePaged:
    """tables: [slots + 1, width] int32, of all requests. divisions: by window, 0 is none; window: the one that is
    looked through."""

    step: StepBuffers
    tables: torch.Tensor
    partitions: Mapping[int, WorkPartition]
    window: int = 0
