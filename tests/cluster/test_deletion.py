"""A deleted service goes whole, and each client that waits for it gets one error."""

from typing import Any

import pytest
from support.cluster.bed import wait_until
from support.cluster.deployed import Release, Service
from support.cluster.traffic import Stream
from support.patience import PATIENCE_S

SMALL: dict[str, Any] = {"engine": {"kvCacheMemory": "128Mi"}}
SHORT = 1_500  # tokens: over long before the grace period
GONE_S = 60


@pytest.fixture
def leaving(octavo: Release) -> Service:
    """A service to be deleted, which serves; one test may leave another to the next."""
    service = octavo.service("leaving", **SMALL)
    service.settled()
    return service


def test_open_requests_of_a_deleted_service_end_with_one_error_and_a_new_one_under_its_name_serves(
    octavo: Release, leaving: Service
) -> None:
    streams = [Stream(leaving.address, 60_000, model="leaving").wait_begun() for _ in range(3)]
    leaving.delete()
    leaving.kill("rank")  # this test does not wait out the two minutes of grace
    for stream in streams:
        stream.wait_end(30).assert_cut_with_one_error()
    another = octavo.service("leaving", **SMALL)
    another.settled()
    answer = another.client().completions.create(model="leaving", prompt="a", max_tokens=3)
    assert answer.choices[0].text == "bcd"


def test_a_deleted_service_finishes_what_it_can_and_goes(octavo: Release, leaving: Service) -> None:
    streams = [Stream(leaving.address, SHORT, model="leaving").wait_begun() for _ in range(3)]
    leaving.delete()
    for stream in streams:
        stream.wait_end(100).assert_whole(SHORT)
    wait_until(lambda: not octavo.left("leaving"), GONE_S, "everything of the service is gone")


def test_requests_that_wait_for_a_group_end_with_one_error_when_their_service_is_deleted(octavo: Release) -> None:
    waiting = octavo.service("waiting", replicas=0, router={"queue": {"maxWait": "10s"}})
    waiting.wait("RouterReady", "True")
    stream = Stream(waiting.address, 5, model="waiting")
    wait_until(lambda: waiting.router_metric("octavo_router_open_requests") == 1, PATIENCE_S, "the request waits")
    waiting.delete()
    answer = stream.wait_end(60)
    assert answer.status == 503
    assert len(answer.errors) == 1, answer.frames
    assert answer.broken == ""
    wait_until(lambda: not octavo.left("waiting"), GONE_S, "everything of the service is gone")
