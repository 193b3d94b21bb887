"""The prefix-block hash: the one rule that a router and a worker must agree on.

A block's hash covers every token before it, so equal hashes mean equal prefixes:

    h(0) = BLAKE2b-128(person="octavo-prefix", key=salt, 0^16 || ids(block 0))
    h(i) = BLAKE2b-128(person="octavo-prefix", key=salt, h(i-1) || ids(block i))

Ids are little-endian uint32, so parts have a fixed length and cannot run into each other; the salt is the hash's key,
so that no salt equals a prefix.
"""

import hashlib

BLOCK_SIZE = 16
_DIGEST_BYTES = 16
_PERSON = b"octavo-prefix"
ROOT = bytes(_DIGEST_BYTES)


def block_hashes(ids: bytes, salt: bytes = b"", block_size: int = BLOCK_SIZE, parent: bytes = ROOT) -> list[bytes]:
    """Chained hashes of the full blocks of `ids` (packed little-endian uint32); the tail that fills no block has none.

    parent: the hash of the block before `ids`, to continue a chain.
    Raises ValueError when `ids` is not a whole number of uint32, or the salt is over 64 bytes.
    """
    if len(ids) % 4:
        raise ValueError(f"ids: {len(ids)} bytes are not a whole number of uint32")
    width = 4 * block_size
    # A copied state costs less than setting up a keyed, personalised one for each block.
    keyed = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=salt, person=_PERSON).copy
    hashes: list[bytes] = []
    for start in range(0, len(ids) - width + 1, width):
        state = keyed()
        state.update(parent + ids[start : start + width])
        parent = state.digest()
        hashes.append(parent)
    return hashes
