"""How many prompt tokens each router may send: enough that the device never waits, so little that the queue stays in
the routers, where it can still be moved, ordered and shed.

A Credit(seen, tokens) says to one router: up to your request number `seen` I have what you sent; beyond it you may have
`tokens` prompt tokens under way. The router keeps

    balance = tokens - sum of uncached prompt tokens of its own requests with number > seen

of the newest Credit that it got, and may send its head, whatever its size, while balance > 0. So a large prompt waits
for credit and never for a fit. Both sides count, nothing is negotiated: a lost or late Credit only makes it older. A
new stream starts from nothing.

    queued = prompt tokens that the scheduler holds uncomputed + tokens sent to it since that count was taken
    room   = depth x step_tokens - queued;  0 while free blocks are under the watermark, or no slot is free and some
             wait; unless nothing runs
    tokens = room / routers, at least 0; for a router none of whose requests waits here, at least step_tokens

The last rule lets an idle router's first request go at once and keeps a busy router from starving the others.
Overdraw is bounded: at any time, queued <= (depth + max(depth, routers)) x step_tokens + routers x largest prompt.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from octavo.worker.messages.limits import Limits
from octavo.worker.messages.output import Load


@dataclass(frozen=True, slots=True)
class Credit:
    seen: int
    tokens: int


class RouterAccount:
    """One router's stream, as the leader saw it so far."""

    def __init__(self) -> None:
        self.seen = 0
        self.queued: set[int] = set()  # numbers that have not begun to answer


class CreditLedger:
    """What `serve` knows of its routers. It sees every request go to the scheduler, in the order of Load.received."""

    def __init__(self, limits: Limits) -> None:
        self._step_tokens = limits.max_batch_tokens
        self._depth = limits.depth
        self._watermark_blocks = limits.watermark_blocks
        self._slots = limits.slots
        self._accounts: dict[Hashable, RouterAccount] = {}
        self._sent = 0  # submits given to the scheduler
        self._fresh: deque[tuple[int, int]] = deque()  # (ordinal, tokens) that no Load has counted yet
        self.closed = False  # no router may send anything

    def join(self, router: Hashable) -> None:
        """A stream begins. A router that reconnects is a new one, with numbers of its own."""
        self._accounts[router] = RouterAccount()

    def leave(self, router: Hashable) -> None:
        """A stream has ended; its requests are cancelled."""
        self._accounts.pop(router, None)

    def on_submit(self, router: Hashable, number: int, tokens: int) -> None:
        """The router's request goes to the scheduler. tokens: its prompt and what was generated elsewhere."""
        account = self._accounts[router]
        account.seen = number
        account.queued.add(number)
        self._sent += 1
        self._fresh.append((self._sent, tokens))

    def on_refused(self, router: Hashable, number: int) -> None:
        """A request that was refused before the scheduler saw it has been seen all the same."""
        self._accounts[router].seen = number

    def on_begun(self, router: Hashable, number: int) -> None:
        """The first output, the end or the cancel of a request: its prompt waits no more."""
        account = self._accounts.get(router)
        if account is not None:
            account.queued.discard(number)

    def grant(self, load: Load) -> dict[Hashable, Credit]:
        """The newest credit of every router. load: the scheduler's newest."""
        if self.closed:
            return {router: Credit(account.seen, 0) for router, account in self._accounts.items()}
        share = max(0, self._room(load)) // max(1, len(self._accounts))
        return {
            router: Credit(account.seen, share if account.queued else max(share, self._step_tokens))
            for router, account in self._accounts.items()
        }

    def _room(self, load: Load) -> int:
        while self._fresh and self._fresh[0][0] <= load.received:
            self._fresh.popleft()
        full = load.free_blocks < self._watermark_blocks or (load.waiting > 0 and load.running >= self._slots)
        if full and load.running:
            return 0
        return self._depth * self._step_tokens - load.prompt_tokens - sum(tokens for _, tokens in self._fresh)
