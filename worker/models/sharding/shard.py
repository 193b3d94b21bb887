"""Which part of a model a rank holds: the layers of its stage, and of them its share.

Heads, MLP columns and vocabulary are split evenly over a stage's ranks. KV heads are replicated when there are more
ranks than KV heads; the vocabulary is padded to a multiple of the ranks.
"""

import math
from dataclasses import dataclass

from octavo.worker.errors import ConfigError
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.tensor_specs import Split, TensorSpec
from octavo.worker.models.sharding.pipeline_split import stage_layers
from octavo.worker.topology import RankPosition


@dataclass(frozen=True, slots=True)
class Shard:
    """rank of the `size` ranks of its stage, which is one of `stages`."""

    rank: int = 0
    size: int = 1
    stage: int = 0
    stages: int = 1

    @staticmethod
    def at(position: RankPosition) -> "Shard":
        return Shard(position.tp_rank, position.layout.tensor, position.stage, position.layout.pipeline)

    @property
    def first(self) -> bool:
        """It embeds."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """It has the final norm and the head."""
        return self.stage == self.stages - 1

    def check(self, config: ModelConfig) -> None:
        """Raises ConfigError when the model cannot be split so, with what would work."""
        if not _divides(self.size, config):
            sizes = [str(size) for size in range(1, config.heads + 1) if _divides(size, config)]
            some = " or ".join(filter(None, (", ".join(sizes[:-1]), sizes[-1])))
            raise ConfigError(
                f"parallelism.tensor (--tensor): {self.size} ranks cannot share the model's {config.heads} heads, "
                f"{config.kv_heads} KV heads and {config.intermediate} columns of MLP evenly; give {some}"
            )
        if self.stages > config.layers:
            raise ConfigError(
                f"parallelism.pipeline (--pipeline): {self.stages} stages are more than the model's {config.layers} "
                f"layers; give at most {config.layers}"
            )

    def layers(self, config: ModelConfig) -> range:
        return stage_layers(config, self.stages)[self.stage]

    def slice_of(self, total: int) -> slice:
        """This rank's share of `total` equal things."""
        width = total // self.size
        return slice(self.rank * width, (self.rank + 1) * width)

    def heads(self, config: ModelConfig) -> slice:
        return self.slice_of(config.heads)

    def kv_heads(self, config: ModelConfig) -> slice:
        if config.kv_heads >= self.size:
            return self.slice_of(config.kv_heads)
        head = self.rank * config.kv_heads // self.size
        return slice(head, head + 1)

    def vocabulary(self, total: int) -> slice:
        """Rows of the padded vocabulary; rows at `total` and beyond do not exist."""
        width = -(-total // self.size)
        return slice(self.rank * width, (self.rank + 1) * width)

    def part(self, spec: TensorSpec, config: ModelConfig) -> tuple[slice, ...]:
        """This rank's part of a tensor. Of a padded vocabulary it may end beyond the last row."""
        rows, *others = (slice(0, size) for size in spec.shape)
        match spec.split:
            case Split.ROWS:
                rows = self.slice_of(spec.shape[0])
            case Split.KV_ROWS:
                heads, width = self.kv_heads(config), spec.shape[0] // config.kv_heads
                rows = slice(heads.start * width, heads.stop * width)
            case Split.COLUMNS:
                others = [self.slice_of(spec.shape[1])]
            case Split.VOCABULARY:
                rows = self.vocabulary(spec.shape[0])
        return rows, *others

    def parameters(self, config: ModelConfig) -> int:
        """Numbers of this rank's weights; norms and biases are too few to count."""
        specs = (spec for spec in config.layer_tensors.values() if len(spec.shape) > 1)
        layer = sum(math.prod(int(one.stop - one.start) for one in self.part(spec, config)) for spec in specs)
        rows = self.vocabulary(config.vocabulary)
        tables = 1 if self.stages == 1 and config.tied else int(self.first) + int(self.last)
        return len(self.layers(config)) * layer + tables * int(rows.stop - rows.start) * config.hidden


def _divides(size: int, config: ModelConfig) -> bool:
    """Whether so many ranks share everything evenly; several of them may have the same KV head."""
    heads = config.kv_heads % size == 0 or size % config.kv_heads == 0
    return heads and config.heads % size == 0 and config.intermediate % size == 0
