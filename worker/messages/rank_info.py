"""The capabilities of a rank: the first record of an incarnation on its ring. The core sends serve their
intersection."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from octavo.worker.config import Config
from octavo.worker.messages.limits import Limits
from octavo.worker.messages.step import LOCAL

DEPTH = 1  # steps under way beyond one a stage, so that the device never waits for the host
_START = b"{"  # no message of the codec begins so


@dataclass(frozen=True, slots=True)
class RankCapabilities:
    """blocks: of the KV cache, block_size tokens each. context_length: of what fits in them at most. graphs: names of
    what the rank can capture, in the order that is best. device: cpu or cuda. features: fields of requests that not
    every device can serve (request.FEATURES), and this one can. path: how its stage adds up, as in DeviceRunner.
    weights: what it adds to the model's digest, in hexadecimal."""

    blocks: int
    block_size: int
    vocabulary: int
    context_length: int
    max_batch_tokens: int
    max_requests: int
    graphs: list[str]
    device: str
    features: list[str]
    path: str = LOCAL
    weights: str = "0"


def dump(capabilities: RankCapabilities) -> bytes:
    return json.dumps(asdict(capabilities)).encode()


def load(record: bytes) -> RankCapabilities | None:
    """None when the record is another message."""
    return RankCapabilities(**json.loads(record)) if record.startswith(_START) else None


def intersect(said: Sequence[RankCapabilities]) -> RankCapabilities:
    """What a group of these ranks can do: as much as the least of them."""
    first, *others = said
    return replace(
        first,
        blocks=min(one.blocks for one in said),
        context_length=min(min(one.context_length, one.blocks * one.block_size) for one in said),
        max_batch_tokens=min(one.max_batch_tokens for one in said),
        max_requests=min(one.max_requests for one in said),
        graphs=[name for name in first.graphs if all(name in one.graphs for one in others)],
        features=[name for name in first.features if all(name in one.features for one in others)],
        weights=f"{sum(int(one.weights, 16) for one in said):x}",
        path="+".join(sorted({one.path for one in said})),
    )


def limits(said: RankCapabilities, config: Config) -> Limits:
    """What the scheduler may hold, by the rank's capabilities and the pod's settings."""
    return Limits(
        blocks=said.blocks, block_size=said.block_size, context_length=said.context_length,
        max_batch_tokens=said.max_batch_tokens, max_requests=said.max_requests, stages=config.pipeline,
        depth=config.pipeline + DEPTH, prefix_caching=config.prefix_caching,
    )  # fmt: skip
