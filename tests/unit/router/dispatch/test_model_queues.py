"""One bound over the queues of all models; what was let in once is let in again."""

import pytest

from octavo.router.dispatch.rules.admission import QueueEntry, QueueFull, QueueLimits
from octavo.router.dispatch.rules.model_queues import ModelQueues


def entry(item: str, expires: float = 10.0) -> QueueEntry[str]:
    return QueueEntry(item, 0, "", 1, 0.0, expires)


def test_as_many_wait_for_all_models_as_may_wait_for_one() -> None:
    queues = ModelQueues[str](QueueLimits(max_requests=3))
    queues.push("a", entry("first"))
    queues.push("b", entry("second", expires=5.0))
    queues.push("b", entry("third"))
    for digest in "abc":
        with pytest.raises(QueueFull, match="3 requests wait"):
            queues.push(digest, entry("fourth"))
    assert len(queues) == 3


def test_a_request_that_waited_for_another_model_goes_ahead_past_the_bound() -> None:
    queues = ModelQueues[str](QueueLimits(max_requests=1))
    queues.push("b", entry("first"))
    queues.push("b", entry("again"), readmitted=True)
    head = queues.of("b").head()
    assert len(queues) == 2 and head is not None and head.item == "again"


def test_requests_that_waited_for_another_model_keep_their_order() -> None:
    queues = ModelQueues[str](QueueLimits())
    queues.push("b", entry("new"))
    for item in ("first", "second", "third"):
        queue = queues.push("b", entry(item), readmitted=True)
    order = []
    while (head := queue.head()) is not None:
        order.append(head.item)
        queue.pop(head, 1.0)
    assert order == ["first", "second", "third", "new"]


def test_queues_of_models_that_have_gone_are_dropped_once_they_are_empty() -> None:
    queues = ModelQueues[str](QueueLimits())
    waiting = entry("first")
    queues.push("gone", waiting)
    kept, gone = queues.of("kept"), queues.of("gone")
    queues.forget(["kept"])
    assert queues.of("kept") is kept and queues.of("gone") is gone
    gone.remove(waiting)
    queues.forget(["kept"])
    assert queues.of("kept") is kept and queues.of("gone") is not gone
    assert not queues.nonempty
