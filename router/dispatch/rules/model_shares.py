"""Which model the next request goes to, while groups serve more than one. Pure.

Smooth weighted round robin by the number of groups: with three groups of one model and one of another, every fourth
request goes to the other. A model whose groups are full is passed over while another has room.
"""

from collections.abc import Callable, Mapping


class ModelShares:
    """How much of its share each model is due."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[str, int] = {}

    def choose(self, groups: Mapping[str, int], has_room: Callable[[str], bool]) -> str:
        """A model's digest. groups: how many serve each model, at least one in all. has_room: whether a request
        for it would be sent at once."""
        total = sum(groups.values())
        # What a model missed while it was full, or had beyond its share, counts for one round at most.
        self._due = {digest: min(self._due.get(digest, 0) + share, total) for digest, share in groups.items()}
        by_due = sorted(groups, key=self._due.__getitem__, reverse=True)
        chosen = next((digest for digest in by_due if has_room(digest)), by_due[0])
        self._due[chosen] = max(self._due[chosen] - total, -total)
        return chosen
