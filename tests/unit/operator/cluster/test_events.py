"""Events stay few whatever a plan says."""

from octavo.operator.cluster.events import BURST, REFILL_S, REPEAT_S, EventBudget
from octavo.operator.planning.actions import Event


def test_the_same_words_are_said_once_in_a_while() -> None:
    budget, event = EventBudget(), Event("Warning", "Unschedulable", "no room")
    assert [budget.allows(event, now) for now in (0.0, 1.0, REPEAT_S - 1, REPEAT_S + 2)] == [True, False, False, True]


def test_ever_new_words_are_bounded() -> None:
    budget = EventBudget()
    sent = sum(budget.allows(Event("Normal", "Changed", str(i)), i * 0.1) for i in range(10_000))
    assert BURST <= sent <= BURST + 1000 / REFILL_S + 1
