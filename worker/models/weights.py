"""From safetensors to a rank's parameters: mapped, sliced, fused, and converted tensor by tensor.

    qkv      rows of q, k, v of this rank's heads       [(h + 2k) * d, hidden], its bias [(h + 2k) * d]
    o        columns of o_proj                           [hidden, h * d], its bias [hidden] on rank 0: ranks add up
    gate_up  rows of gate, then of up                    [2 * wide, hidden]
    down     columns of down_proj                        [hidden, wide]

The files are mapped, never read whole: the peak is the parameters plus one tensor.
"""

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from octavo.worker.models.folder.checkpoint import Checkpoint
from octavo.worker.models.folder.config import ModelConfig
from octavo.worker.models.folder.safetensors_header import Tensor
from octavo.worker.models.sharding.shard import Shard

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
HOST = torch.device("cpu")
Copy = Callable[[torch.Tensor, torch.Tensor], object]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """What a model does not have is None. q_norm, k_norm: [d], the same on all ranks."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    o_bias: torch.Tensor | None
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


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
    ) -> None:
        """copy(target, source): how values get to `device`; it need not wait. Raises ConfigError."""
        shard.check(checkpoint.config)
        self.config, self.shard = checkpoint.config, shard
        self.dtype, self.device = dtype, device
        self._copy = copy
        self._reader = TensorReader(checkpoint.tensors)

    def embedding(self) -> torch.Tensor:
        """[vocabulary / size, hidden], padded with zeros."""
        return self._vocabulary_rows("model.embed_tokens.weight")

    def head(self) -> torch.Tensor:
        """As embedding; for a model with tied embeddings, the same values."""
        return self._vocabulary_rows("model.embed_tokens.weight" if self.config.tied else "lm_head.weight")

    def final_norm(self) -> torch.Tensor:
        return self._whole("model.norm.weight")

    def layer(self, index: int) -> LayerWeights:
        prefix, config, shard = f"model.layers.{index}", self.config, self.shard
        queries = _rows(shard.heads(config), config.head_dim)
        keys = _rows(shard.kv_heads(config), config.head_dim)
        wide = shard.slice_of(config.intermediate)
        attention = f"{prefix}.self_attn"
        rows = {f"{attention}.q_proj": queries, f"{attention}.k_proj": keys, f"{attention}.v_proj": keys}
        return LayerWeights(
            input_norm=self._whole(f"{prefix}.input_layernorm.weight"),
            qkv=self._fused(rows, "weight"),
            qkv_bias=self._fused(rows, "bias") if config.qkv_bias else None,
            q_norm=self._whole(f"{attention}.q_norm.weight") if config.head_norms else None,
            k_norm=self._whole(f"{attention}.k_norm.weight") if config.head_norms else None,
            o=self._made(f"{attention}.o_proj.weight", lambda whole: whole[:, queries]),
            o_bias=self._whole(f"{attention}.o_proj.bias") if config.o_bias and shard.rank == 0 else None,
            post_norm=self._whole(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=self._fused({f"{prefix}.mlp.gate_proj": wide, f"{prefix}.mlp.up_proj": wide}, "weight"),
            down=self._made(f"{prefix}.mlp.down_proj.weight", lambda whole: whole[:, wide]),
        )

    def _whole(self, name: str) -> torch.Tensor:
        return self._made(name, lambda whole: whole)

    def _made(self, name: str, part: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        view = part(self._reader.read(name))
        made = torch.empty(view.shape, dtype=self.dtype, device=self.device)
        self._copy(made, view)
        return made

    def _fused(self, parts: dict[str, slice], kind: str) -> torch.Tensor:
        """Rows of several matrices, one under another, or of their biases."""
        views = [self._reader.read(f"{name}.{kind}")[rows] for name, rows in parts.items()]
        size = (sum(view.shape[0] for view in views), *views[0].shape[1:])
        fused = torch.empty(size, dtype=self.dtype, device=self.device)
        filled = 0
        for view in views:
            self._copy(fused[filled : filled + view.shape[0]], view)
            filled += view.shape[0]
        return fused

    def _vocabulary_rows(self, name: str) -> torch.Tensor:
        whole = self._reader.read(name)
        rows = self.shard.vocabulary(whole.shape[0])
        part = torch.empty((rows.stop - rows.start, whole.shape[1]), dtype=self.dtype, device=self.device)
        existing = whole[rows]
        part[existing.shape[0] :] = 0  # not all of it: a copy that does not wait might come first
        self._copy(part[: existing.shape[0]], existing)
        return part


def _rows(heads: slice, dim: int) -> slice:
    return slice(heads.start * dim, heads.stop * dim)


def local_heads(config: ModelConfig, shard: Shard) -> tuple[int, int]:
    """(heads, kv heads) of one rank."""
    kv = shard.kv_heads(config)
    return config.heads // shard.size, kv.stop - kv.start
