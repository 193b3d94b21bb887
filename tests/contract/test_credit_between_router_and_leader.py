"""The router's ledger against the leader's bank, over a network that delays every message and breaks."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octavo.router.dispatch.rules.ledger import Ledger
from octavo.worker.leader.admission.credit import Credit, CreditLedger
from octavo.worker.messages.limits import Limits
from octavo.worker.messages.output import Load

STEP = 100
LARGEST = 350
NOTHING = Credit(0, 0)
LIMITS = Limits(blocks=1000, block_size=16, max_batch_tokens=STEP, max_requests=64, context_length=4096)


@dataclass
class Stream:
    """One Serve stream, both its directions, and the test's own book of what the router knows."""

    name: int
    ledger: Ledger = field(default_factory=Ledger)
    heard: Credit = NOTHING
    sent: list[int] = field(default_factory=list)  # tokens, by number - 1
    up: deque[tuple[int, int]] = field(default_factory=deque)
    down: deque[Credit] = field(default_factory=deque)

    def covered(self) -> int:
        """The rule, from its definition."""
        return self.heard.tokens - sum(self.sent[self.heard.seen :])


class Network(RuleBasedStateMachine):
    """One to three routers, each with a queue; every arrival, step and break comes when hypothesis likes."""

    @initialize(routers=st.integers(1, 3))
    def start(self, routers: int) -> None:
        self.bank = CreditLedger(LIMITS)
        self.names = 0
        self.waiting: list[deque[int]] = [deque() for _ in range(routers)]
        self.streams = [self.connect() for _ in range(routers)]
        self.abandoned: list[Stream] = []  # broken, which the leader has not noticed yet
        self.inbox: deque[list[int]] = deque()  # [stream, number, tokens] on their way from serve to core
        self.held: deque[list[int]] = deque()  # in the scheduler
        self.received = 0
        self.most_streams = routers

    def connect(self) -> Stream:
        self.names += 1
        self.bank.join(self.names)
        return Stream(self.names)

    def pump(self, router: int) -> None:
        """As the dispatcher does: heads go while the balance is positive."""
        stream, queue = self.streams[router], self.waiting[router]
        while queue and stream.ledger.balance > 0:
            assert stream.covered() > 0, "sent what the newest Credit does not cover"
            tokens = queue.popleft()
            number = stream.ledger.send(tokens)
            stream.sent.append(tokens)
            stream.up.append((number, tokens))
            assert number == len(stream.sent)
            assert stream.covered() > -tokens, "overdrawn by more than this one request"

    @rule(router=st.integers(0, 2), tokens=st.integers(1, LARGEST))
    def arrive(self, router: int, tokens: int) -> None:
        router %= len(self.streams)
        self.waiting[router].append(tokens)
        self.pump(router)

    @rule(router=st.integers(0, 2), count=st.integers(1, 5))
    def leader_reads(self, router: int, count: int) -> None:
        stream = self.streams[router % len(self.streams)]
        for _ in range(min(count, len(stream.up))):
            number, tokens = stream.up.popleft()
            self.bank.on_submit(stream.name, number, tokens)
            self.inbox.append([stream.name, number, tokens])

    @rule(count=st.integers(1, 5))
    def core_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.inbox))):
            self.held.append(self.inbox.popleft())
            self.received += 1

    @rule(tokens=st.integers(1, STEP))
    def core_computes(self, tokens: int) -> None:
        while self.held and tokens:
            done = min(tokens, self.held[0][2])
            self.held[0][2] -= done
            tokens -= done
            if not self.held[0][2]:
                name, number, _ = self.held.popleft()
                self.bank.on_begun(name, number)

    @rule()
    def leader_tells(self) -> None:
        load = Load(sum(entry[2] for entry in self.held), 0, len(self.held), 1000, 1000, received=self.received)
        granted = self.bank.grant(load)
        for stream in self.streams:
            stream.down.append(granted[stream.name])

    @rule(router=st.integers(0, 2), count=st.integers(1, 5))
    def router_reads(self, router: int, count: int) -> None:
        router %= len(self.streams)
        stream = self.streams[router]
        for _ in range(min(count, len(stream.down))):
            stream.heard = stream.down.popleft()
            stream.ledger.credit(stream.heard.seen, stream.heard.tokens)
            self.pump(router)

    @rule(router=st.integers(0, 2))
    def reconnect(self, router: int) -> None:
        """The stream breaks; what it carried goes back to the queue, and a new one starts from nothing."""
        router %= len(self.streams)
        old = self.streams[router]
        self.waiting[router].extendleft(reversed(old.sent[old.heard.seen :]))
        self.abandoned.append(old)
        self.streams[router] = self.connect()
        self.most_streams = max(self.most_streams, len(self.streams) + len(self.abandoned))
        assert self.streams[router].ledger.balance == 0

    @rule()
    def leader_notices_a_broken_stream(self) -> None:
        if self.abandoned:
            old = self.abandoned.pop(0)
            self.bank.leave(old.name)
            self.received += len(self.inbox)
            kept = [entry for entry in (*self.held, *self.inbox) if entry[0] != old.name]
            self.inbox.clear()
            self.held = deque(kept)

    @invariant()
    def a_ledger_agrees_with_the_definition(self) -> None:
        for stream in getattr(self, "streams", ()):
            assert stream.ledger.balance == stream.covered()

    @invariant()
    def the_leader_holds_no_more_than_the_grants_under_way_and_one_request_a_router(self) -> None:
        if hasattr(self, "streams"):
            count = self.most_streams
            bound = (LIMITS.depth + max(LIMITS.depth, count)) * STEP + count * LARGEST
            assert sum(entry[2] for entry in (*self.held, *self.inbox)) <= bound

    def teardown(self) -> None:
        """Left alone, everything that waits is sent: no stream starves behind a lost credit."""
        if not hasattr(self, "streams"):
            return
        while self.abandoned:
            self.leader_notices_a_broken_stream()
        for _ in range(10 * sum(map(len, self.waiting)) + 50):
            for router in range(len(self.streams)):
                self.leader_reads(router, 5)
                self.router_reads(router, 5)
            self.core_reads(5)
            self.core_computes(STEP)
            self.leader_tells()
        assert not any(self.waiting)


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
