"""Orders to give the device's memory back and to have it again, and what comes of them.

serve -> core -> every rank; back comes a MemoryState from each rank, and one of the whole group to serve. An order goes
to the ranks only when no step is under way. A rank that is as an order asks changes nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sleep:
    """Give the memory of weights back, and unless `keep_kv` that of the KV cache, whose contents are lost."""

    keep_kv: bool


@dataclass(frozen=True, slots=True)
class Wake:
    """Have it again."""


@dataclass(frozen=True, slots=True)
class MemoryState:
    """After an order. rank: of the group; GROUP: of all. moved_bytes: of the device's memory, given back or taken.
    error: why the order was not followed: then all is as before; empty when it was."""

    rank: int
    asleep: bool
    moved_bytes: int = 0
    error: str = ""


GROUP = 0xFFFFFFFF
