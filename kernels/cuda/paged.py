"""A step's rows on the device, in buffers of fixed size whose contents change: a graph replays with new ones.

Padding rows are those of the slot that no request has, with length 0; padding tokens have place -1 and go nowhere.
"""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class DevicePaged:
    """int32 throughout, rows [R], tokens [t]; see prepare.py, which fills them.

    header: [16] true counts. places: [t] block * 16 + offset. tables: [slots + 1, width] of all requests.
    decode_plan, tiles: who does what in attention; None when the step has no such rows for certain.
    """

    header: torch.Tensor
    places: torch.Tensor
    positions: torch.Tensor
    row_slots: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    begins: torch.Tensor
    lengths: torch.Tensor
    tables: torch.Tensor
    decode_plan: Any
    tiles: Any
