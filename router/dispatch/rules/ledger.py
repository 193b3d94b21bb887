"""Credit on one stream, as the router counts it. Pure.

    balance = credit.tokens - sum of uncached prompt tokens of own requests numbered > credit.seen

While the balance is positive the router may send its head, whatever its size: a large prompt waits for credit, never
for a fit. So the balance can go below zero by at most one request, and by nothing that a newer Credit does not cover.
"""

from collections import deque


class Ledger:
    """One stream's numbers and credit; a new stream starts a new one, from nothing."""

    __slots__ = ("_granted", "_numbers", "_seen", "_unseen", "_unseen_tokens")

    def __init__(self) -> None:
        self._numbers = 0
        self._seen = 0
        self._granted = 0
        self._unseen: deque[tuple[int, int]] = deque()  # (number, uncached prompt tokens), rising
        self._unseen_tokens = 0

    @property
    def balance(self) -> int:
        return self._granted - self._unseen_tokens

    @property
    def unseen_tokens(self) -> int:
        """Sent, and not yet in the leader's own count."""
        return self._unseen_tokens

    @property
    def unseen(self) -> int:
        return len(self._unseen)

    @property
    def next_number(self) -> int:
        """Of the request that is sent next."""
        return self._numbers + 1

    def send(self, uncached_tokens: int) -> int:
        """Number a request; the caller has seen that the balance is positive."""
        assert self.balance > 0, "sent beyond the credit"
        self._numbers += 1
        self._unseen.append((self._numbers, uncached_tokens))
        self._unseen_tokens += uncached_tokens
        return self._numbers

    def credit(self, seen: int, tokens: int) -> None:
        """The newest Credit replaces the one before."""
        self._seen = seen
        self._granted = tokens
        while self._unseen and self._unseen[0][0] <= seen:
            self._unseen_tokens -= self._unseen.popleft()[1]
