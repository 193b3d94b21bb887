"""The KV cache of one rank: how many blocks its memory gives, and the context that they can hold. No torch."""

from dataclasses import dataclass

from octavo.worker.errors import ConfigError
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.sharding.pipeline_split import stage_layers
from octavo.worker.models.sharding.shard import Shard
from octavo.worker.topology import Layout


@dataclass(frozen=True, slots=True)
class KvShape:
    """Of one rank: layers of its stage, its kv heads."""

    layers: int
    kv_heads: int
    head_dim: int
    block_size: int
    item_bytes: int

    @staticmethod
    def of(model: ModelConfig, layout: Layout, block_size: int, item_bytes: int) -> "KvShape":
        """Of the stage with the most layers: a block is one of every stage, so no stage can have more of them."""
        heads = Shard(0, layout.tensor).kv_heads(model)
        layers = max(map(len, stage_layers(model, layout.pipeline)))
        return KvShape(layers, heads.stop - heads.start, model.head_dim, block_size, item_bytes)

    @property
    def block_bytes(self) -> int:
        """Keys and values of one block over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.block_size * self.item_bytes


@dataclass(frozen=True, slots=True)
class KvPlan:
    """blocks: for requests. note: why the context is shorter than configured; empty when it is not."""

    blocks: int
    context_length: int
    note: str = ""


def plan_kv(shape: KvShape, budget_bytes: int, context_length: int, max_requests: int) -> KvPlan:
    """Raises ConfigError when not even one block fits. One block beyond `blocks` pads tables."""
    per_context = -(-context_length // shape.block_size)
    blocks = min(budget_bytes // shape.block_bytes - 1, per_context * max_requests)
    if blocks < 1:
        needed = 2 * shape.block_bytes
        text = f"kvCacheMemory (--kv-cache-memory): {budget_bytes} bytes hold no block of KV; give at least {needed}"
        raise ConfigError(text)
    fits = blocks * shape.block_size
    if fits >= context_length:
        return KvPlan(blocks, context_length)
    note = f"context length lowered from {context_length} to {fits}: {budget_bytes} bytes of KV cache hold no more"
    return KvPlan(blocks, fits, note)
