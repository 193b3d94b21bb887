"""Without the operator services go on, mend what pods can mend, and can be deleted."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster.bed import Cluster, wait_until
from support.cluster.deployed import Release, Service, release
from support.cluster.traffic import Traffic

SMALL: dict[str, Any] = {"engine": {"kvCacheMemory": "128Mi"}}
RANK_S, POD_S, GONE_S = 20.0, 60.0, 60


@pytest.fixture(scope="module", autouse=True)
def deleted(octavo: Release, cluster: Cluster) -> Iterator[Release]:
    """A release whose namespace was deleted when its operator was gone: that takes a while, so it begins first."""
    with release(cluster, "deleted", octavo.models, replicas=1) as here:
        here.service("letters", **SMALL).settled()
        here.operators(0)
        cluster.client.delete("namespace", here.namespace)
        yield here


@pytest.fixture(scope="module")
def alone(octavo: Release) -> Iterator[Release]:
    """The release without its operators; the services `letters` and `orphan` serve."""
    orphan = octavo.service("orphan", **SMALL)
    octavo.letters()
    orphan.settled()
    octavo.operators(0)
    yield octavo
    octavo.operators(2)


def test_a_service_deleted_while_the_operator_is_gone_goes_whole(alone: Release) -> None:
    Service(alone, "orphan").delete()
    wait_until(lambda: not alone.left("orphan"), GONE_S, "everything of the service is gone")


def test_traffic_a_crash_and_a_lost_pod_need_no_operator_which_then_catches_up(alone: Release) -> None:
    letters = Service(alone, "letters")
    with Traffic(letters.client()) as traffic:
        wait_until(lambda: len(traffic.answered) > 5, 30, "answers")
        killed = time.monotonic()
        letters.kill("rank")
        wait_until(lambda: any(at > killed + 1 for at in traffic.answered), RANK_S, "answers after the crash")
        deleted = time.monotonic()
        alone.kubectl("delete", "pod", *letters.pods(), "--wait=false")
        wait_until(lambda: any(at > deleted + 3 for at in traffic.answered), POD_S, "answers of a new pod")
    letters.change(replicas=2)
    alone.operators(2)
    letters.settled(2)


def test_a_namespace_deleted_while_the_operator_is_gone_goes_whole(deleted: Release, cluster: Cluster) -> None:
    # Kubernetes looks again only after half the pods' grace period, however soon they are gone.
    wait_until(lambda: cluster.get("namespace", deleted.namespace) is None, 140, "the namespace is gone")
