"""Credit keeps the engine's queue short, never starves a router, and is overdrawn within a bound."""

from collections import deque
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octavo.worker.leader.admission.credit import Credit, CreditLedger
from octavo.worker.messages.limits import Limits
from octavo.worker.messages.output import Load

STEP = 100
NOTHING = Credit(0, 0)
LIMITS = Limits(
    blocks=1000, block_size=16, max_batch_tokens=STEP, max_requests=8, context_length=2000, depth=2, watermark=0.1
)
IDLE = Load(prompt_tokens=0, running=0, waiting=0, free_blocks=1000, total_blocks=1000)


def bank(*routers: str) -> CreditLedger:
    made = CreditLedger(LIMITS)
    for router in routers:
        made.join(router)
    return made


def test_routers_share_what_is_left_of_depth_steps() -> None:
    assert bank("a").grant(IDLE) == {"a": Credit(0, 200)}
    assert bank("a", "b").grant(IDLE) == {"a": Credit(0, 100), "b": Credit(0, 100)}


def test_a_ledger_that_is_closed_grants_nothing_until_it_is_opened() -> None:
    made = bank("a", "b")
    made.on_submit("a", 1, 70)
    made.closed = True
    assert made.grant(IDLE) == {"a": Credit(1, 0), "b": NOTHING}
    made.closed = False
    assert made.grant(replace(IDLE, received=1)) == {"a": Credit(1, 100), "b": Credit(0, 100)}


def test_tokens_on_their_way_to_the_scheduler_count_until_its_load_has_them() -> None:
    made = bank("a")
    made.on_submit("a", 1, 70)
    assert made.grant(IDLE) == {"a": Credit(1, 130)}
    assert made.grant(replace(IDLE, received=1, prompt_tokens=40)) == {"a": Credit(1, 160)}


def test_a_router_with_enough_prefill_queued_gets_nothing_more() -> None:
    made = bank("a")
    made.on_submit("a", 1, 250)
    assert made.grant(IDLE) == {"a": Credit(1, 0)}


def test_an_idle_router_holds_one_step_however_much_another_has_queued() -> None:
    made = bank("a", "b")
    made.on_submit("a", 1, 5000)
    assert made.grant(IDLE)["b"] == Credit(0, STEP)


def test_a_router_is_idle_again_once_its_request_begins_to_answer() -> None:
    made = bank("a")
    made.on_submit("a", 1, 50)
    busy = replace(IDLE, received=1, running=5, free_blocks=10)
    assert made.grant(busy) == {"a": Credit(1, 0)}
    made.on_begun("a", 1)
    assert made.grant(busy) == {"a": Credit(1, STEP)}


def test_nothing_is_granted_while_blocks_are_under_the_watermark() -> None:
    made = bank("a")
    made.on_submit("a", 1, 1)
    low = replace(IDLE, received=1, running=1, free_blocks=99)
    assert made.grant(low)["a"].tokens == 0
    assert made.grant(replace(low, free_blocks=100))["a"].tokens == 200


def test_the_watermark_is_void_when_nothing_runs() -> None:
    made = bank("a")
    made.on_submit("a", 1, 1)
    assert made.grant(replace(IDLE, received=1, free_blocks=0))["a"].tokens == 200


def test_nothing_is_granted_while_requests_wait_for_a_slot() -> None:
    made = bank("a")
    made.on_submit("a", 1, 1)
    full = replace(IDLE, received=1, running=8, waiting=1)
    assert made.grant(full)["a"].tokens == 0
    assert made.grant(replace(full, waiting=0))["a"].tokens == 200


def test_a_pipeline_has_slots_for_the_micro_batch_of_each_stage() -> None:
    made = CreditLedger(replace(LIMITS, max_batch_tokens=4, stages=2, depth=3))
    made.join("a")
    made.on_submit("a", 1, 1)
    running = replace(IDLE, received=1, running=7, waiting=1)
    assert made.grant(running)["a"].tokens > 0
    assert made.grant(replace(running, running=8))["a"].tokens == 0


def test_a_refused_request_is_seen_and_costs_nothing() -> None:
    made = bank("a")
    made.on_refused("a", 1)
    assert made.grant(IDLE) == {"a": Credit(1, 200)}


def test_a_router_that_reconnects_starts_from_nothing() -> None:
    made = bank("a")
    made.on_submit("a", 9, 50)
    made.leave("a")
    made.on_begun("a", 9)
    made.join("a")
    assert made.grant(replace(IDLE, received=1)) == {"a": Credit(0, 200)}


@dataclass
class Router:
    """The other side of the rule, with every message late in both directions."""

    credit: Credit = NOTHING
    number: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    up: deque[tuple[int, int]] = field(default_factory=deque)
    down: deque[Credit] = field(default_factory=deque)

    def balance(self) -> int:
        return self.credit.tokens - sum(tokens for number, tokens in self.sent.items() if number > self.credit.seen)


class Delays(RuleBasedStateMachine):
    """One to three routers that send all they may, through delays and reconnects, to a scheduler that computes late."""

    largest = 350

    @initialize(routers=st.integers(1, 3))
    def start(self, routers: int) -> None:
        self.bank = CreditLedger(LIMITS)
        self.routers = {name: Router() for name in range(routers)}
        self.queue: deque[list[int]] = deque()  # [router, number, tokens] in the scheduler
        self.inbox: deque[list[int]] = deque()  # on their way from serve to core
        self.received = 0
        self.next_name = routers
        for name in self.routers:
            self.bank.join(name)

    def load(self) -> Load:
        return replace(IDLE, prompt_tokens=sum(tokens for *_, tokens in self.queue), received=self.received)

    def pick(self, which: int) -> tuple[int, Router]:
        return sorted(self.routers.items())[which % len(self.routers)]

    @rule(which=st.integers(0, 2), tokens=st.integers(1, largest))
    def send(self, which: int, tokens: int) -> None:
        _, router = self.pick(which)
        if router.balance() > 0:
            router.number += 1
            router.sent[router.number] = tokens
            router.up.append((router.number, tokens))

    @rule(which=st.integers(0, 2))
    def leader_receives(self, which: int) -> None:
        name, router = self.pick(which)
        if router.up:
            number, tokens = router.up.popleft()
            self.bank.on_submit(name, number, tokens)
            self.inbox.append([name, number, tokens])

    @rule()
    def scheduler_receives(self) -> None:
        if self.inbox:
            self.queue.append(self.inbox.popleft())
            self.received += 1

    @rule(tokens=st.integers(1, STEP))
    def scheduler_computes(self, tokens: int) -> None:
        while self.queue and tokens:
            done = min(tokens, self.queue[0][2])
            self.queue[0][2] -= done
            tokens -= done
            if not self.queue[0][2]:
                name, number, _ = self.queue.popleft()
                self.bank.on_begun(name, number)

    @rule()
    def leader_tells(self) -> None:
        for name, credit in self.bank.grant(self.load()).items():
            self.routers[name].down.append(credit)

    @rule(which=st.integers(0, 2))
    def router_hears(self, which: int) -> None:
        _, router = self.pick(which)
        if router.down:
            router.credit = router.down.popleft()

    @rule(which=st.integers(0, 2))
    def reconnect(self, which: int) -> None:
        name, _ = self.pick(which)
        del self.routers[name]
        self.bank.leave(name)
        self.queue = deque(entry for entry in self.queue if entry[0] != name)
        self.received += len(self.inbox)
        self.queue.extend(entry for entry in self.inbox if entry[0] != name)
        self.inbox.clear()
        self.bank.join(self.next_name)
        self.routers[self.next_name] = Router()
        self.next_name += 1

    @invariant()
    def the_queue_stays_within_its_bound(self) -> None:
        if hasattr(self, "bank"):
            count = len(self.routers)
            bound = (LIMITS.depth + max(LIMITS.depth, count)) * STEP + count * self.largest
            assert sum(tokens for *_, tokens in (*self.queue, *self.inbox)) <= bound

    @invariant()
    def an_idle_router_may_send(self) -> None:
        if hasattr(self, "bank"):
            for name, credit in self.bank.grant(self.load()).items():
                waits = any(entry[0] == name for entry in (*self.queue, *self.inbox))
                assert waits or credit.tokens >= STEP


TestDelays = Delays.TestCase
TestDelays.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
