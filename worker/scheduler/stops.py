"""All stop ids of all live requests, so that a step's tokens are tested against them at once."""

from collections import Counter
from collections.abc import Sequence


class Stops:
    def __init__(self) -> None:
        self._sets: Counter[frozenset[int]] = Counter()  # most requests have the same one
        self._all: frozenset[int] = frozenset()

    def add(self, stop_ids: frozenset[int]) -> None:
        self._sets[stop_ids] += 1
        self._all |= stop_ids

    def drop(self, stop_ids: frozenset[int]) -> None:
        self._sets[stop_ids] -= 1
        if not self._sets[stop_ids]:
            del self._sets[stop_ids]
            self._all = frozenset().union(*self._sets)

    def among(self, ids: Sequence[int]) -> list[int]:
        """Indices of ids that are a stop id of some request: the caller finds which."""
        if self._all.isdisjoint(ids):
            return []
        return [index for index, token in enumerate(ids) if token in self._all]
