"""A group as a routing policy sees it. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group that can serve the request, has credit and has not refused it.

    cached: this prompt's tokens that it probably holds. The router numbers the requests that it sends, from 1:
    last_sent: number of the last one that this group got; last_cold: of the last one with an unknown prompt; 0: none.
    """

    pending_tokens: int
    decoding: int
    cached: int
    last_cold: int
    last_sent: int = 0


# (prompt tokens, candidates: at least one) -> index of the candidate that gets the request
Policy = Callable[[int, Sequence[Candidate]], int]
