"""What a device cannot beat: the seconds that the bytes and the FLOPs of a workload take at least."""

from dataclasses import dataclass

from workloads import Request

from octavo.worker.models.config.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class Card:
    """What a device-to-device copy moves, read and written, and a large bfloat16 product of random numbers does."""

    bytes_per_s: float
    flops: float


H100 = Card(3.0e12, 746e12)
CARDS = {"H100": H100, "H200": Card(4.3e12, 788e12)}  # as measured; by a part of the device's name


@dataclass(frozen=True, slots=True)
class Limit:
    """Seconds. prompts: their products and attention. steps: products of the steps that follow, each the longer of the
    time that its weights and that its FLOPs take. attention: of these steps, by bytes or FLOPs of all."""

    prompts: float
    steps: float
    attention: float

    @property
    def seconds(self) -> float:
        return self.prompts + self.steps + self.attention


def limit(model: ModelConfig, requests: list[Request], shared: int, card: Card) -> Limit:
    """Of an engine that reads the prompts, then takes a step for each new token after the first; weights of 2 bytes.
    shared: tokens that all prompts begin with, which are computed once and read once a step."""
    heads = model.heads * model.head_dim
    matrices = model.layers * [
        model.hidden * (heads + 2 * model.kv_heads * model.head_dim), heads * model.hidden,
        2 * model.hidden * model.intermediate, model.hidden * model.intermediate,
    ]  # fmt: skip
    head = model.vocabulary * model.hidden
    kv_bytes = 2 * 2 * model.layers * model.kv_heads * model.head_dim  # of a token
    pair_flops = 4 * model.layers * heads  # of a token and one that it sees

    prompts = [len(request.prompt) for request in requests]
    read = sum(prompts) - shared * (len(requests) - 1)
    seen = sum(_pairs(length) for length in prompts) - (len(requests) - 1) * _pairs(shared)
    of_prompts = 2 * sum(matrices) * read + 2 * head * len(requests) + pair_flops * seen

    steps, new_bytes, new_pairs = 0.0, 0, 0
    for step in range(1, max(request.new_tokens for request in requests)):
        rows = [request for request in requests if request.new_tokens > step]
        steps += sum(max(2 * m / card.bytes_per_s, 2 * m * len(rows) / card.flops) for m in (*matrices, head))
        tokens = sum(len(request.prompt) + step for request in rows)
        new_bytes += kv_bytes * (tokens - shared * (len(rows) - 1))
        new_pairs += tokens
    attention = max(new_bytes / card.bytes_per_s, pair_flops * new_pairs / card.flops)
    return Limit(of_prompts / card.flops, steps, attention)


def _pairs(length: int) -> int:
    """Of tokens, each with every token that it sees: itself, and what is before it."""
    return length * (length + 1) // 2
