"""From safetensors to a rank's parameters: mapped, sliced, fused, and converted tensor by tensor.

What a rank has of each tensor is its spec's split (config/tensor_specs.py); the parts of a linear layer are fused:

    qkv      rows of q, k, v of this rank's heads       [(h + 2k) * d, hidden], its bias [(h + 2k) * d]
    o        columns of o_proj                           [hidden, h * d], its bias [hidden] on rank 0: ranks add up
    gate_up  rows of gate, then of up                    [2 * wide, hidden]
    down     columns of down_proj                        [hidden, wide]

The files are mapped, never read whole: the peak is the parameters plus one tensor.
"""

import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import torch

from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.tensor_specs import EMBEDDING, FINAL_NORM, HEAD, LinearShape, Split
from octavo.worker.models.folder.checkpoint import Checkpoint
from octavo.worker.models.folder.safetensors_header import Tensor
from octavo.worker.models.linear_methods.registry import METHODS
from octavo.worker.models.sharding.shard import Shard
from octavo.worker.models.weights_digest import WeightsDigest

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
HOST = torch.device("cpu")
Copy = Callable[[torch.Tensor, torch.Tensor], object]


class Make(Protocol):
    """As torch.empty."""

    def __call__(self, shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor: ...


def _empty(shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


class TensorReader:
    """Tensors of a checkpoint as views of mapped files."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._maps: dict[Path, mmap.mmap] = {}

    def read(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        if tensor.file not in self._maps:
            with open(tensor.file, "rb") as file:
                self._maps[tensor.file] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        dtype = _DTYPES[tensor.dtype]
        count = (tensor.end - tensor.begin) // dtype.itemsize
        flat = torch.frombuffer(self._maps[tensor.file], dtype=dtype, count=count, offset=tensor.begin)
        return flat.view(tensor.shape)


class Weights:
    """A rank's parameters of one checkpoint, each made when asked for."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        shard: Shard,
        device: torch.device = HOST,
        copy: Copy = torch.Tensor.copy_,
        hash_threads: int = 1,
        make: Make = _empty,
    ) -> None:
        """copy(target, source): how values get to `device`; need not wait. make: memory there. Raises ConfigError."""
        shard.check(checkpoint.config)
        self.config, self.shard = checkpoint.config, shard
        self.dtype, self.device = dtype, device
        self._copy, self._make = copy, make
        self._reader = TensorReader(checkpoint.tensors)
        self._specs = checkpoint.config.tensors()
        self.digest = WeightsDigest(checkpoint.tensors, shard.rank, shard.size, hash_threads)
        self._method = METHODS[checkpoint.config.linear_method]

    def embedding(self) -> torch.Tensor:
        """[vocabulary / size, hidden], padded with zeros."""
        return self.tensor(EMBEDDING)

    def head(self) -> torch.Tensor:
        """As embedding; for a model with tied embeddings, the same values."""
        return self.tensor(EMBEDDING if self.config.tied else HEAD)

    def final_norm(self) -> torch.Tensor:
        return self.tensor(FINAL_NORM)

    def linear(self, prefix: str, shape: LinearShape) -> dict[str, torch.Tensor]:
        """The tensors of a linear layer by the method's names; what another rank has alone is left out."""
        found = dict[str, torch.Tensor]()
        for name, spec in self._method.tensors(shape.parts[0], shape).items():
            if spec.split is not Split.FIRST_RANK or self.shard.rank == 0:
                found[name] = self.tensor(*(f"{prefix}{part.name}.{name}" for part in shape.parts))
        return found

    def tensor(self, *names: str) -> torch.Tensor:
        """This rank's parts of these tensors, one after another."""
        parts = [self.shard.part(self._specs[name], self.config) for name in names]
        rows = [part[0].stop - part[0].start for part in parts]
        views = [self._reader.read(name)[part] for name, part in zip(names, parts, strict=True)]
        made = self._make((sum(rows), *views[0].shape[1:]), dtype=self.dtype, device=self.device)
        for target, view in zip(made.split(rows), views, strict=True):
            existing = view.shape[0]
            if existing < target.shape[0]:
                target[existing:] = 0  # not all of it: a copy that does not wait might come first
            self._copy(target[:existing], view)
        for name in names:
            if name != EMBEDDING or self.shard.first:  # a tied head is hashed by the stage that embeds
                self.digest.add(name, alone=self._specs[name].split is Split.FIRST_RANK)
        return made


def local_heads(config: ModelConfig, shard: Shard) -> tuple[int, int]:
    """(heads, kv heads) of one rank."""
    kv = shard.kv_heads(config)
    return config.heads // shard.size, kv.stop - kv.start
