"""Which group gets the next request. Pure.

    work(g) = prompt tokens pending at g + BETA x requests decoding at g + this request's uncached tokens at g

Among the groups with credit, only those with work <= BOUND x mean are considered (bounded load: Mirrokni 2018). Of
these, the one that has most of the prompt cached; a prompt that nobody knows goes to the one that least recently took
such a prompt, so that prefixes spread.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.shared.hashing import block_hashes

BETA = 16  # prompt tokens that weigh as much as one request decoding: the order of a step's chunk over its batch
BOUND = 1.25
AFFINITY_BLOCK = 64  # tokens; four of the worker's blocks, for a quarter of the hashing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group with credit. cached: this prompt's tokens it probably holds. last_cold: a count of unknown prompts."""

    pending_tokens: int
    decoding: int
    cached: int
    last_cold: int


def choose(prompt_tokens: int, candidates: Sequence[Candidate]) -> int:
    """The index of the best of them; there is at least one."""
    work = [c.pending_tokens + BETA * c.decoding + prompt_tokens - c.cached for c in candidates]
    bound = BOUND * sum(work) / len(work)
    ranks = [
        (-c.cached, 0 if c.cached else c.last_cold, w, index)
        for index, (c, w) in enumerate(zip(candidates, work, strict=True))
        if w <= bound
    ]
    return min(ranks)[-1]


def affinity_hashes(prompt: bytes, salt: bytes = b"") -> list[bytes]:
    """Chained hashes of a prompt's affinity blocks; prompt: packed uint32 ids; salt: as the group's own blocks have."""
    return block_hashes(prompt, salt, AFFINITY_BLOCK)


class PrefixMemory:
    """Which prefixes a group has lately been sent: a guess at its cache, bounded like it, oldest forgotten first."""

    __slots__ = ("_capacity", "_hashes")

    def __init__(self, capacity_tokens: int) -> None:
        self._capacity = max(capacity_tokens // AFFINITY_BLOCK, 1)
        self._hashes: OrderedDict[bytes, None] = OrderedDict()

    def cached_tokens(self, hashes: Iterable[bytes]) -> int:
        """Tokens of the longest known prefix."""
        blocks = 0
        for block in hashes:
            if block not in self._hashes:
                break
            blocks += 1
        return blocks * AFFINITY_BLOCK

    def remember(self, hashes: Sequence[bytes]) -> None:
        """A prompt was sent. Its tail ages first, as in the cache: a prefix outlives what follows it."""
        for block in reversed(hashes):
            self._hashes[block] = None
            self._hashes.move_to_end(block)
        while len(self._hashes) > self._capacity:
            self._hashes.popitem(last=False)
