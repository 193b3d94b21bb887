"""A rollout that cannot succeed costs nothing that serves, whatever happens to the groups meanwhile."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster.bed import wait_until
from support.cluster.deployed import Release, Service
from support.cluster.traffic import Traffic
from support.patience import PATIENCE_S

SMALL: dict[str, Any] = {"engine": {"kvCacheMemory": "64Mi"}, "resources": {"requests": {"cpu": "50m"}}}
GROUPS = 3


@pytest.fixture
def stuck(octavo: Release) -> Iterator[Service]:
    service = octavo.service("stuck", replicas=GROUPS, **SMALL)
    service.settled(GROUPS)
    yield service
    service.delete()
    wait_until(lambda: not octavo.left("stuck"), PATIENCE_S, "the service is gone")


@pytest.mark.timeout(900, func_only=True)
def test_three_groups_serve_on_through_bad_images_and_a_blip_of_each(stuck: Service) -> None:
    before, pods = stuck.groups(), stuck.pods()
    assert len(before) == GROUPS
    with Traffic(stuck.client(), clients=1, model=stuck.name):
        for number, pod in enumerate(sorted(pods)):
            stuck.change(image=f"localhost/octavo-worker:missing-{number}")
            image = f"missing-{number}"
            wait_until(lambda: tried(stuck, image), PATIENCE_S, f"{image} is tried")  # noqa: B023
            stuck.kill("rank", pod)
            wait_until(lambda: ready(stuck) < GROUPS, PATIENCE_S, "the blip is seen")
            wait_until(lambda: ready(stuck) == GROUPS, PATIENCE_S, "all serve again")
    after = stuck.groups()
    assert before.items() <= after.items() and len(after) == GROUPS + 1
    assert pods.items() <= stuck.pods().items()
    stuck.change(image=None)
    stuck.settled(GROUPS)
    assert stuck.groups() == before


@pytest.mark.timeout(900, func_only=True)
def test_a_failed_rollout_goes_back_by_itself(stuck: Service) -> None:
    before = stuck.groups()
    with Traffic(stuck.client(), clients=1, model=stuck.name):
        rollout = {"progressDeadline": "20s", "onFailure": "rollback"}
        stuck.change(image="localhost/octavo-worker:missing", rollout=rollout)
        assert "missing" in stuck.wait("Progressing", "False", "RolledBack")["message"]
        assert stuck.object()["status"]["rollback"]["reason"] == "ImagePullBackOff"
        wait_until(lambda: stuck.groups() == before, PATIENCE_S, "the new group is gone")
    assert stuck.condition("Ready")["status"] == "True"
    stuck.change(image=None)
    stuck.settled(GROUPS)


def ready(service: Service) -> int:
    return int(service.object()["status"]["readyReplicas"])


def tried(service: Service, image: str) -> bool:
    """A pod of this image is there, and does not start."""
    return image in service.condition("Progressing").get("message", "")
