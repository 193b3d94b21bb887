"""A step's rows on the device, as the layers' attention needs them: in buffers of fixed size, whose contents change."""

from dataclasses import dataclass

import torch

from octavo.kernels.cuda.decode import DecodePlan
from octavo.kernels.cuda.prefill import PrefillTiles
from octavo.kernels.cuda.steps import StepBuffers


@dataclass(frozen=True, slots=True)
class DevicePaged:
    """tables: [slots + 1, width] int32, of all requests. tiles: None when the step has no rows of several tokens."""

    step: StepBuffers
    tables: torch.Tensor
    decode: DecodePlan
    tiles: PrefillTiles | None
