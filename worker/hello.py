"""What a rank tells once it can serve, and the core passes on to serve: the first record of a life on its ring."""

import json
from dataclasses import asdict, dataclass

from octavo.worker.config import Config
from octavo.worker.limits import Limits

DEPTH = 1  # steps under way beyond one a stage, so that the device never waits for the host
_START = b"{"  # no message of the codec begins so


@dataclass(frozen=True, slots=True)
class Hello:
    """blocks: of the KV cache, block_size tokens each. context_length: of what fits in them at most. graphs: those that
    the rank can capture, in the order that is best. device: cpu or cuda."""

    blocks: int
    block_size: int
    vocabulary: int
    context_length: int
    max_batch_tokens: int
    max_requests: int
    graphs: list[str]
    device: str


def dump(hello: Hello) -> bytes:
    return json.dumps(asdict(hello)).encode()


def load(record: bytes) -> Hello | None:
    """None when the record is another message."""
    return Hello(**json.loads(record)) if record.startswith(_START) else None


def limits(said: Hello, config: Config) -> Limits:
    """What the scheduler may hold, by what the rank has and what the pod was told."""
    return Limits(
        blocks=said.blocks, block_size=said.block_size, context_length=said.context_length,
        max_batch_tokens=said.max_batch_tokens, max_requests=said.max_requests, depth=config.stages + DEPTH,
        prefix_caching=config.prefix_caching,
    )  # fmt: skip
