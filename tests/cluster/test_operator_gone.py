"""Without the operator services go on, mend what pods can mend, and can be deleted."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.bed import Cluster, wait_until
from support.deployed import Release, Service, release
from support.traffic import Traffic

SMALL: dict[str, Any] = {"engine": {"kvCacheMemory": "128Mi"}}
RANK_S, POD_S, GONE_S = 20.0, 60.0, 60


@pytest.fixture(scope="module", autouse=True)
def doomed(octavo: Release, cluster: Cluster) -> Iterator[Release]:
    """A release whose namespace was deleted when its operator was gone: that takes a while, so it begins first."""
    with release(cluster, "doomed", octavo.models) as here:
        here.service("letters", **SMALL).settled()
        here.operators(0)
        cluster.client.delete("namespace", here.namespace)
        yield here


def test_traffic_a_crash_and_a_lost_pod_are_borne_without_the_operator(letters: Service) -> None:
    here = letters.release
    here.operators(0)
    try:
        with Traffic(letters.client()) as traffic:
            wait_until(lambda: len(traffic.answered) > 5, 30, "answers")
            killed = time.monotonic()
            letters.kill("rank")
            wait_until(lambda: any(at > killed + 1 for at in traffic.answered), RANK_S, "answers after the crash")
            deleted = time.monotonic()
            here.kubectl("delete", "pod", *letters.pods(), "--wait=false")
            wait_until(lambda: any(at > deleted + 3 for at in traffic.answered), POD_S, "answers of a new pod")
    finally:
        here.operators(2)
    letters.apply(replicas=2, **SMALL)  # and back: it catches up with what it is told
    letters.settled(2)


def test_a_service_deleted_while_the_operator_is_gone_goes_whole(octavo: Release) -> None:
    orphan = octavo.service("orphan", **SMALL)
    orphan.settled()
    octavo.operators(0)
    try:
        orphan.delete()
        wait_until(lambda: not octavo.left("orphan"), GONE_S, "everything of the service is gone")
    finally:
        octavo.operators(2)


def test_a_namespace_deleted_while_the_operator_is_gone_goes_whole(doomed: Release, cluster: Cluster) -> None:
    # Kubernetes looks again only after half the pods' grace period, however soon they are gone.
    wait_until(lambda: cluster.get("namespace", doomed.namespace) is None, 140, "the namespace is gone")
