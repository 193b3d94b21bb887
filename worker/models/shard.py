"""Which part of a model a rank holds: heads, MLP columns and vocabulary are split evenly over a stage's ranks.

KV heads are replicated when there are more ranks than KV heads; the vocabulary is padded to a multiple of the ranks.
"""

from dataclasses import dataclass

from octavo.worker.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Shard:
    """rank of `size` ranks."""

    rank: int = 0
    size: int = 1

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError when the model cannot be split so."""
        for name, total in (("num_attention_heads", config.heads), ("intermediate_size", config.intermediate)):
            if total % self.size:
                raise ValueError(f"tensor parallelism of {self.size}: it must divide {name} ({total})")
        if config.kv_heads % self.size and self.size % config.kv_heads:
            raise ValueError(f"tensor parallelism of {self.size}: it must divide num_key_value_heads, or the reverse")

    def part(self, total: int) -> slice:
        """This rank's share of `total` equal things."""
        width = total // self.size
        return slice(self.rank * width, (self.rank + 1) * width)

    def kv_heads(self, config: ModelConfig) -> slice:
        if config.kv_heads >= self.size:
            return self.part(config.kv_heads)
        head = self.rank * config.kv_heads // self.size
        return slice(head, head + 1)

    def vocabulary(self, total: int) -> slice:
        """Rows of the padded vocabulary; those at `total` and beyond do not exist."""
        width = -(-total // self.size)
        return slice(self.rank * width, (self.rank + 1) * width)
