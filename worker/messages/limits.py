"""What a scheduler may hold at once, and which requests can therefore never run."""

from dataclasses import dataclass

from octavo.worker.messages.request import Invalid, NewRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """blocks: of the KV pool, block_size tokens each. depth: steps under way, stages + 1. stages: of the pipeline, each
    of which has a micro-batch of its own to work on. watermark: share of the blocks that admission leaves free while
    others run, so that they can grow before any is preempted."""

    blocks: int
    block_size: int
    max_batch_tokens: int
    max_requests: int
    context_length: int
    depth: int = 2
    prefix_caching: bool = True
    watermark: float = 0.01
    stages: int = 1

    def __post_init__(self) -> None:
        sizes = ("blocks", "block_size", "max_batch_tokens", "max_requests", "context_length", "depth", "stages")
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, is {getattr(self, name)}")
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark: must be at least 0 and under 1, is {self.watermark}")

    @property
    def slots(self) -> int:
        """Requests that may run at once: one that decodes has a row in every step of its micro-batch."""
        return min(self.max_requests, self.stages * self.max_batch_tokens)

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.blocks)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def total(self, new: NewRequest) -> int:
        """Tokens that a request may ever have; max_tokens beyond the context is cut to it."""
        return min(len(new.prompt) + new.max_tokens, self.context_length)

    def check(self, new: NewRequest) -> None:
        """Raises Invalid when the request can never run."""
        known = len(new.prompt) + len(new.generated)
        room = self.blocks * self.block_size
        if not new.prompt:
            raise Invalid("prompt", "is empty; send at least one token")
        if new.max_tokens < 1:
            raise Invalid("max_tokens", f"must be at least 1, is {new.max_tokens}")
        if len(new.generated) >= new.max_tokens:
            raise Invalid("generated", f"{len(new.generated)} tokens already reach max_tokens {new.max_tokens}")
        if known >= self.context_length:
            raise Invalid("prompt", f"{known} tokens leave no room in the context of {self.context_length}; shorten it")
        if known > room:
            raise Invalid("prompt", f"{known} tokens do not fit the KV cache of {room}; shorten it")
        if self.total(new) - 1 > room:  # the last token is sampled and never computed
            more = self.total(new) - len(new.prompt)
            raise Invalid("max_tokens", f"{more} tokens after {len(new.prompt)} do not fit the KV cache of {room}")
