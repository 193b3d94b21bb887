"""Which block holds which prefix: chained hash <-> block, one to one.

A hash covers every token before its block too, so a run of hits from the first block on is a shared prefix.
"""

from collections.abc import Sequence


class Prefix:
    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._hash_of)

    def __contains__(self, block: int) -> bool:
        return block in self._hash_of

    def match(self, hashes: Sequence[bytes]) -> list[int]:
        """Blocks of the longest cached run from the first hash on."""
        hits: list[int] = []
        for digest in hashes:
            block = self._block_of.get(digest)
            if block is None:
                break
            hits.append(block)
        return hits

    def find(self, digest: bytes) -> int | None:
        return self._block_of.get(digest)

    def add(self, digest: bytes, block: int) -> None:
        """The first block with some contents keeps the name; a copy stays private to its request."""
        if digest not in self._block_of and block not in self._hash_of:
            self._block_of[digest] = block
            self._hash_of[block] = digest

    def forget(self, block: int) -> None:
        digest = self._hash_of.pop(block, None)
        if digest is not None:
            del self._block_of[digest]
