"""The tensors that a checkpoint must hold and which part of each a rank has: name -> (shape, split). No torch.

An architecture lists what a layer computes with, vectors and linear layers (`Parameters`). The linear method says which
tensors a linear layer has. The table of both checks a checkpoint (folder/tensors.py) and loads it (weights.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


class Split(Enum):
    """Which part of a tensor a rank of a stage has (sharding/shard.py)."""

    WHOLE = auto()  # all of it
    ROWS = auto()  # an even share of its rows
    KV_ROWS = auto()  # the rows of its KV heads, which several ranks may have
    COLUMNS = auto()  # an even share of its columns: the ranks add up their products
    VOCABULARY = auto()  # rows of the padded vocabulary
    FIRST_RANK = auto()  # all of it on the first rank, and on others nothing: it is added to a sum of the ranks


@dataclass(frozen=True, slots=True)
class TensorSpec:
    shape: tuple[int, ...]
    split: Split


@dataclass(frozen=True, slots=True)
class Vector:
    """A tensor of one dimension that every rank has, such as the weight of a norm."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """The checkpoint's name of a linear layer, its outputs, and how its weight is split."""

    name: str
    outputs: int
    split: Split


@dataclass(frozen=True, slots=True)
class LinearShape:
    """A linear layer; several of a checkpoint become one, their outputs one after another."""

    parts: tuple[Part, ...]
    inputs: int
    bias: bool = False


Parameters = Mapping[str, Vector | LinearShape]  # of one layer, by the name that the layer has for it

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def layer_prefix(index: int) -> str:
    return f"model.layers.{index}."
