"""Every wrong wish is named in the status, and taking it back needs nothing but the next apply."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from support.bed import wait_until
from support.checkpoints import successor_checkpoint
from support.deployed import Release, Service, readable
from support.traffic import Traffic

NAMED_S = 60.0
AGAIN_S = 120.0
SMALL: dict[str, Any] = {"engine": {"kvCacheMemory": "128Mi"}}
BAD_IMAGE = SMALL | {"image": "localhost/octavo-worker:missing"}
TOO_MUCH = SMALL | {"resources": {"requests": {"cpu": "10000"}}}


@pytest.fixture
def wrong(octavo: Release) -> Iterator[Service]:
    """A service to be applied wrongly."""
    service = Service(octavo, "wrong")
    yield service
    service.delete()
    wait_until(lambda: not octavo.left("wrong"), 60, "the service is gone")


@pytest.mark.parametrize(
    ("spec", "reason", "said"),
    [
        pytest.param(BAD_IMAGE, "ImagePullBackOff", "localhost/octavo-worker:missing", id="image"),
        pytest.param(TOO_MUCH, "Unschedulable", "cpu", id="resources"),
    ],
)
def test_a_service_born_wrong_is_mended_by_the_next_apply(
    wrong: Service, spec: dict[str, Any], reason: str, said: str
) -> None:
    wrong.apply(**spec)
    condition = wrong.wait("Ready", "False", reason, NAMED_S)
    assert said in condition["message"]
    assert "wrong-0-0" in condition["message"]
    wrong.apply(**SMALL)
    wrong.settled(timeout_s=AGAIN_S)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [pytest.param(BAD_IMAGE, "ImagePullBackOff", id="image"), pytest.param(TOO_MUCH, "Unschedulable", id="resources")],
)
def test_a_wrong_change_leaves_the_old_group_serving_and_can_be_taken_back(
    letters: Service, spec: dict[str, Any], reason: str
) -> None:
    before = letters.pods()
    with Traffic(letters.client(), clients=1):
        letters.apply(replicas=1, **spec)
        letters.wait("Degraded", "True", reason, NAMED_S)
        assert letters.wait("Progressing", "False", reason)
        assert letters.condition("Ready")["status"] == "True"
        letters.apply(replicas=1, **SMALL)
        letters.settled()
    assert letters.pods() == before


def test_routers_without_the_secret_of_their_keys_name_it_and_start_once_it_is_there(wrong: Service) -> None:
    wrong.apply(router={"apiKeys": {"secretName": "wrong-keys"}}, **SMALL)
    said = wrong.wait("RouterReady", "False", "SecretMissing", NAMED_S)["message"]
    command = "kubectl create secret generic wrong-keys --from-file=keys="
    assert command in said
    assert command in wrong.wait("Ready", "False", "SecretMissing")["message"]
    wrong.release.kubectl("create", "secret", "generic", "wrong-keys", "--from-literal=keys=sk-octavo-1")
    wrong.settled(timeout_s=AGAIN_S)
    wrong.release.kubectl("delete", "secret", "wrong-keys")


def test_a_missing_model_is_named_and_served_once_it_is_there(wrong: Service) -> None:
    folder = wrong.release.models / "late"
    shutil.rmtree(folder, ignore_errors=True)
    wrong.apply("late", **SMALL)
    assert "/models/late" in wrong.wait("Ready", "False", "ModelNotFound", NAMED_S)["message"]
    readable(successor_checkpoint(folder))
    wrong.settled()


def test_a_truncated_model_is_named_by_its_file_and_taken_back(wrong: Service) -> None:
    folder = wrong.release.models / "truncated"
    weights = successor_checkpoint(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    readable(folder)
    wrong.apply("truncated", **SMALL)
    assert "model.safetensors" in wrong.wait("Ready", "False", "ModelInvalid", NAMED_S)["message"]
    wrong.apply(**SMALL)
    wrong.settled()


def test_a_claim_that_is_missing_and_a_folder_of_the_node_are_refused_by_name(wrong: Service) -> None:
    wrong.apply("pvc://nowhere/model")
    assert "nowhere" in wrong.wait("Ready", "False", "VolumePending", NAMED_S)["message"]
    wrong.apply("file:///models/letters")
    assert "allow-host-path" in wrong.wait("Ready", "False", "HostPathNotAllowed", NAMED_S)["message"]


def test_an_event_tells_of_each_cause(wrong: Service) -> None:
    wrong.apply(**TOO_MUCH)
    wrong.wait("Ready", "False", "Unschedulable", NAMED_S)

    def reasons() -> set[str]:
        text = wrong.release.kubectl("get", "events", "--field-selector=involvedObject.name=wrong", "-o", "json")
        return {event["reason"] for event in json.loads(text)["items"]}

    wait_until(lambda: {"GroupCreated", "Unschedulable"} <= reasons(), 20, "events")
