"""From a router's Submit to the engine's request. PURE: what is wrong is named by field, nothing silently mended."""

import math
import sys
from array import array
from dataclasses import dataclass

from octavo.hashing import block_hashes
from octavo.proto.v1 import engine_pb2
from octavo.worker.request import Invalid, NewRequest, Sampling


@dataclass(frozen=True, slots=True)
class Rules:
    """What a group can serve. eos_ids end a request unless it ignores them."""

    vocabulary: int
    context_length: int
    block_size: int
    eos_ids: frozenset[int]
    prefix_caching: bool


def read_submit(submit: engine_pb2.Submit, key: int, rules: Rules) -> NewRequest:
    """Raises Invalid naming the field."""
    prompt = _ids("prompt", submit.prompt, rules)
    generated = _ids("generated", submit.generated, rules)
    if not prompt:
        raise Invalid("prompt", "is empty; send at least one token")
    known = len(prompt) + len(generated)
    if known >= rules.context_length:
        raise Invalid("prompt", f"{known} tokens leave no room in the context of {rules.context_length}; shorten it")
    limits = submit.limits
    if limits.max_tokens < 1:
        raise Invalid("max_tokens", f"must be at least 1, is {limits.max_tokens}")
    stops = frozenset(limits.stop_ids)
    hashes = block_hashes(submit.prompt + submit.generated, block_size=rules.block_size) if rules.prefix_caching else ()
    return NewRequest(
        key=key,
        prompt=prompt,
        generated=generated,
        sampling=_sampling(submit.sampling),
        max_tokens=limits.max_tokens,
        stop_ids=stops if limits.ignore_eos else stops | rules.eos_ids,
        priority=submit.priority,
        hashes=tuple(hashes),
        grammar=submit.grammar,
    )


def _ids(field: str, packed: bytes, rules: Rules) -> tuple[int, ...]:
    if len(packed) % 4:
        raise Invalid(field, f"{len(packed)} bytes are not a whole number of uint32 ids")
    ids = array("I", packed)
    if sys.byteorder == "big":
        ids.byteswap()
    if ids and max(ids) >= rules.vocabulary:
        raise Invalid(field, f"id {max(ids)} is not in the vocabulary of {rules.vocabulary}")
    return tuple(ids)


def _sampling(sampling: engine_pb2.Sampling) -> Sampling:
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise Invalid("temperature", f"must be a number from 0, is {sampling.temperature}")
    top_p = sampling.top_p or 1.0  # unset: off
    if not 0 < top_p <= 1:
        raise Invalid("top_p", f"must be over 0 and at most 1, is {top_p}")
    return Sampling(sampling.temperature, sampling.top_k, top_p, sampling.seed)
