"""A guess at the prefixes that a group's KV cache holds, from the prompts that it was sent. Pure.

Routing policies compare groups by it, and a request's uncached tokens are what it takes of its group's credit.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from octavo.shared.hashing import block_hashes

AFFINITY_BLOCK = 64  # tokens; four of the worker's blocks, for a quarter of the hashing


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
