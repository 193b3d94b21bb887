"""What an architecture is: what it accepts of config.json, the tensors of a layer, and what a layer computes.

A module for each, which is imported without torch: other processes than ranks read config.json by it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from octavo.worker.models.config.family import Family
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.tensor_specs import Parameters

if TYPE_CHECKING:
    from octavo.worker.models.attention import Attend
    from octavo.worker.models.residual import Residual


class DecoderLayer(Protocol):
    """A loaded layer of a rank."""

    def layer(self, x: "Residual", attend: "Attend") -> None:
        """Add to the residual stream what this layer computes of it. attend: of this pass."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """parameters: of a layer. make_layer: from the loaded ones, each by its name, vectors as tensors and linear layers
    as `Linear`. Norms of each head are named q_norm and k_norm; they are part, with the layer's window, of `attention`,
    which it takes too."""

    family: Family
    parameters: Callable[[ModelConfig], Parameters]
    make_layer: Callable[..., DecoderLayer]
