"""A container that runs out of memory is called that, whichever process the kernel chose, and more memory mends it."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster.bed import wait_until
from support.cluster.deployed import Release, Service

NAMED_S = 90.0


def limited(memory: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": memory}, "limits": {"memory": memory}}
    return {"engine": {"kvCacheMemory": "64Mi"}, "resources": resources}


@pytest.fixture(scope="module")
def hungry(octavo: Release) -> Iterator[Service]:
    """It has never served before the test with enough memory."""
    service = Service(octavo, "hungry")
    yield service
    service.delete()
    wait_until(lambda: not octavo.left("hungry"), 60, "the service is gone")


def test_a_supervisor_that_the_kernel_killed_for_memory_is_named(hungry: Service) -> None:
    hungry.apply(**limited("40Mi"))
    message = hungry.wait("Ready", "False", "OOMKilled", NAMED_S)["message"]
    assert "hungry-0-0" in message
    assert "resources.limits.memory" in message


def test_a_rank_that_the_kernel_killed_for_memory_is_named_and_more_memory_mends_it(hungry: Service) -> None:
    hungry.apply(**limited("220Mi"))

    def said() -> str:
        seen = hungry.condition("Ready")
        return str(seen["message"]) if seen.get("reason") == "OOMKilled" and "rank" in seen["message"] else ""

    name = wait_until(said, NAMED_S, "a lost rank is named").partition(":")[0]
    pod = hungry.release.bed.get("pod", name, hungry.release.namespace)
    assert pod is not None, name
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0, "the supervisor lived on"
    hungry.apply(**limited("2Gi"))
    hungry.settled()
