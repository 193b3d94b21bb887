"""Stop strings: cut where the first one is complete, hold back only what may still become one.

Knuth-Morris-Pratt, one automaton a string, fed character by character, so that the verdict does not depend on how
the text was cut into pieces: the string that completes first wins, of several that complete together the longest.
"""

from collections.abc import Sequence


class StopFinder:
    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        """include: the string that completes first is shown, and so nothing is held back."""
        self._stops = [(stop, _failure(stop)) for stop in stops]
        self._states = [0] * len(stops)  # how much of each string the text ends with
        self._held = ""
        self._include = include

    def push(self, text: str) -> tuple[str, bool]:
        """Text that may be shown now, and whether a stop string was completed (nothing may follow then)."""
        seen = self._held + text
        start = len(self._held)
        for offset, character in enumerate(text):
            complete = self._advance(character)
            if complete:
                self._held = ""
                return seen[: start + offset + 1 - (0 if self._include else complete)], True
        held = 0 if self._include else max(self._states, default=0)
        cut = len(seen) - held
        self._held = seen[cut:]
        return seen[:cut], False

    def flush(self) -> str:
        """What was held back, when the end comes by another cause."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> int:
        """Feed one character to every automaton; the length of the longest string completed, or 0."""
        complete = 0
        for index, (stop, failure) in enumerate(self._stops):
            state = self._states[index]
            while state and stop[state] != character:
                state = failure[state - 1]
            if stop[state] == character:
                state += 1
            if state == len(stop):
                complete = max(complete, state)
                state = failure[state - 1]
            self._states[index] = state
        return complete


def _failure(stop: str) -> list[int]:
    """failure[i]: length of the longest proper prefix of stop that ends stop[: i + 1]."""
    failure = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = failure[length - 1]
        if stop[index] == stop[length]:
            length += 1
        failure[index] = length
    return failure
