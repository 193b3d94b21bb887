"""Events stay few whatever a plan says, and repeated ones are counted."""

from typing import Any, cast

import pytest
from support.cluster.services import resource

from octavo.operator.cluster.apply import Writer
from octavo.operator.cluster.events import BURST, FOR_NEW, KEEP_S, REFILL_S, EventCounter, Recorder
from octavo.operator.cluster.kube import KubeError
from octavo.operator.planning.actions import Event

Json = dict[str, Any]  # Any: Kubernetes JSON
OUTAGE = Event("Warning", "RankExited", "chat-0-0: rank 0 ended")


def test_the_same_event_is_counted_until_the_server_has_forgotten_it() -> None:
    counter = EventCounter()
    first, second, third, late = (counter.occurred(OUTAGE, now) for now in (0.0, 1.0, KEEP_S, 2 * KEEP_S + 1))
    assert first is not None and first is second is third and first.count == 3
    assert late is not None and late.count == 1 and late.name != first.name


def test_events_of_another_type_or_message_are_others() -> None:
    counter = EventCounter()
    for other in (OUTAGE, Event("Normal", OUTAGE.reason, OUTAGE.message), Event("Warning", OUTAGE.reason, "other")):
        recorded = counter.occurred(other, 0.0)
        assert recorded is not None and recorded.count == 1


def test_ever_new_words_are_bounded() -> None:
    counter = EventCounter()
    sent = sum(counter.occurred(Event("Normal", "Changed", str(i)), i * 0.1) is not None for i in range(10_000))
    assert BURST <= sent <= BURST + 1000 / REFILL_S + 1


def test_what_the_limit_held_back_is_in_the_next_count() -> None:
    counter = EventCounter()
    written = [recorded for i in range(100) if (recorded := counter.occurred(OUTAGE, i * 0.01))]
    assert len(written) == BURST - FOR_NEW
    after = counter.occurred(OUTAGE, 1.0 + REFILL_S)
    assert after is not None and after.count == 101


def test_an_event_of_each_look_leaves_writes_to_others() -> None:
    counter = EventCounter()
    for i in range(1_000):
        counter.occurred(OUTAGE, i * 0.1)
    new = [counter.occurred(Event("Normal", "Changed", str(i)), 100.0) for i in range(int(FOR_NEW))]
    assert None not in new


class Server:
    """Events that an API server has, by name."""

    def __init__(self) -> None:
        self.events: dict[str, Json] = {}

    async def event(self, event: Json) -> None:
        name = event["metadata"]["name"]
        assert name not in self.events
        self.events[name] = event

    async def event_again(self, event: Json) -> bool:
        name = event["metadata"]["name"]
        if name not in self.events:
            return False
        self.events[name] |= {key: event[key] for key in ("count", "lastTimestamp")}
        return True


async def test_a_second_outage_raises_the_count_and_an_event_that_is_gone_is_made_again() -> None:
    server = Server()
    recorder = Recorder(cast(Writer, server), "one")
    for _ in range(2):
        await recorder.record(resource(), OUTAGE)
    (event,) = server.events.values()
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "RankExited", 2)
    server.events.clear()
    await recorder.record(resource(), OUTAGE)
    (event,) = server.events.values()
    assert event["count"] == 3


async def test_an_event_that_was_refused_is_created_at_its_next_occurrence(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    recorder = Recorder(cast(Writer, server), "one")
    accept = server.event

    async def refuse(event: Json) -> None:
        raise error

    server.event = refuse  # type: ignore[method-assign]
    error = KubeError(403, "Forbidden", 'events "x" is forbidden: unable to create new content in namespace ns '
                      "because it is being terminated")  # fmt: skip
    await recorder.record(resource(), OUTAGE)
    assert not caplog.records, "a namespace that is being deleted is nothing to warn of"
    error = KubeError(500, "InternalError", "etcd")
    await recorder.record(resource(), OUTAGE)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    server.event = accept  # type: ignore[method-assign]
    await recorder.record(resource(), OUTAGE)
    assert [event["count"] for event in server.events.values()] == [3]
