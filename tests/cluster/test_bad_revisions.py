"""Every wrong setting is named in the status, and taking it back needs nothing but the next apply."""

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster.bed import wait_until
from support.cluster.deployed import Release, Service, readable
from support.cluster.traffic import Traffic
from support.models.checkpoints import successor_checkpoint

NAMED_S = 60.0
EVENT_S = 90.0  # a pod without a node is a failure, with an event, after a minute
AGAIN_S = 120.0
SMALL: dict[str, Any] = {"engine": {"kvCacheMemory": "128Mi"}}
KEYS = "wrong-keys"
BAD_IMAGE = {"image": "localhost/octavo-worker:missing"}
TOO_MUCH = {"resources": {"requests": {"cpu": "10000"}}}


@pytest.fixture(scope="module")
def wrong(octavo: Release) -> Iterator[Service]:
    """A service that is applied wrongly, again and again, and has never served: not before the last of the tests that
    share it, whatever their order."""
    service = Service(octavo, "wrong")
    yield service
    service.delete()
    wait_until(lambda: not octavo.left("wrong"), 60, "the service is gone")


def apply_wrongly(wrong: Service, model: str, **spec: Any) -> None:
    """Its routers lack the Secret of their keys, and refuse every request."""
    wrong.apply(model, router={"apiKeys": {"secretName": KEYS}}, **SMALL | spec)


@pytest.mark.parametrize(
    ("model", "spec", "reason", "said"),
    [
        pytest.param("letters", BAD_IMAGE, "ImagePullBackOff", "localhost/octavo-worker:missing", id="image"),
        pytest.param("letters", TOO_MUCH, "Unschedulable", "cpu", id="resources"),
        pytest.param("pvc://nowhere/model", {}, "VolumePending", "nowhere", id="claim"),
        pytest.param("file:///models/letters", {}, "HostPathNotAllowed", "allow-host-path", id="folder of the node"),
    ],
)
def test_a_wrong_setting_of_a_new_service_is_named_and_reported_in_an_event(
    wrong: Service, model: str, spec: dict[str, Any], reason: str, said: str
) -> None:
    apply_wrongly(wrong, model, **spec)
    message = wrong.wait("Ready", "False", reason, NAMED_S)["message"]
    assert said in message
    if reason != "HostPathNotAllowed":  # then there is a pod
        assert re.search(r"\bwrong-\d+-0\b", message), message
    wait_until(lambda: reason in event_reasons(wrong), EVENT_S, "the event")


def event_reasons(service: Service) -> set[str]:
    text = service.release.kubectl(
        "get", "events", f"--field-selector=involvedObject.name={service.name}", "-o", "json"
    )
    return {event["reason"] for event in json.loads(text)["items"]}


def test_a_truncated_model_is_named_by_its_file(wrong: Service) -> None:
    folder = wrong.release.models / "truncated"
    weights = successor_checkpoint(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    readable(folder)
    apply_wrongly(wrong, "truncated")
    assert "model.safetensors" in wrong.wait("Ready", "False", "ModelInvalid", NAMED_S)["message"]


def test_a_missing_model_and_a_missing_secret_of_keys_are_named_and_used_once_they_are_there(wrong: Service) -> None:
    folder = wrong.release.models / "late"
    shutil.rmtree(folder, ignore_errors=True)
    apply_wrongly(wrong, "late")
    assert "/models/late" in wrong.wait("Ready", "False", "ModelNotFound", NAMED_S)["message"]
    readable(successor_checkpoint(folder))

    command = f"kubectl create secret generic {KEYS} --from-file=keys="
    assert command in wrong.wait("Ready", "False", "SecretMissing")["message"]
    assert command in wrong.wait("RouterReady", "False", "SecretMissing")["message"]
    wrong.release.kubectl("create", "secret", "generic", KEYS, "--from-literal=keys=sk-octavo-1")
    wrong.settled(timeout_s=AGAIN_S)
    wrong.release.kubectl("delete", "secret", KEYS)


@pytest.mark.parametrize(
    ("spec", "reason", "degraded"),
    [
        pytest.param(BAD_IMAGE, "ImagePullBackOff", "True", id="image"),
        pytest.param(TOO_MUCH, "SurgeUnschedulable", "False", id="resources"),
    ],
)
def test_a_wrong_change_leaves_the_old_group_serving_and_can_be_taken_back(
    letters: Service, spec: dict[str, Any], reason: str, degraded: str
) -> None:
    before, right = letters.pods(), letters.spec()
    with Traffic(letters.client(), clients=1):
        letters.change(**spec)
        letters.wait("Progressing", "False", reason, AGAIN_S)
        assert letters.wait("Stalled", "True", reason)
        assert letters.condition("Degraded")["status"] == degraded
        assert letters.answers() and not letters.condition("Ready"), "by the group of the spec before"
        letters.change(**dict.fromkeys(spec))
        letters.settled()
    assert letters.spec() == right
    assert letters.pods() == before
