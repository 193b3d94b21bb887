"""Others that change the operator's objects back: its writes are bounded, a condition names the field and the other,
and the object is applied again once they stop. Other services go on."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.cluster.api_client import ApiClient, ApiError
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import condition, operator, service, settled, writes
from support.cluster.webhook import mutating
from support.patience import PATIENCE_S

FIGHT_S = 30.0
MOST = 10  # writes of one object in that time: 4 at once, then after 2, 4, 8 and 16 s, and one to spare on each side
EDITS_S, OTHERS_S = 60.0, 1.0
HEALED_S = PATIENCE_S + 60.0  # the longest delay that is reached, and the time until a conflict has settled

ROUTER = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat-router"}}


def scale(client: ApiClient, space: str) -> None:
    """As an autoscaler that insists on its number."""
    client.apply({**ROUTER, "spec": {"replicas": 4}}, space, manager="autoscaler")


def drop(client: ApiClient, space: str) -> None:
    """As a controller that wants no policies."""
    client.delete("networkpolicy", "chat-workers", space)


@contextmanager
def insisting(bed: Bed, space: str, insist: Callable[[ApiClient, str], None], pause_s: float = 0.02) -> Iterator[None]:
    """A client that does this again and again."""
    stop, client = threading.Event(), ApiClient(bed.state)

    def run() -> None:
        while not stop.wait(pause_s):
            with suppress(ApiError):
                insist(client, space)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def reconciled(bed: Bed, space: str, name: str = "chat") -> tuple[str, str]:
    found = condition(bed, space, "Reconciled", name)
    return found.get("status", ""), found.get("reason", "")


def replicas(bed: Bed, space: str, name: str) -> int:
    return int((bed.get("deployment", name, space) or {"spec": {"replicas": -1}})["spec"]["replicas"])


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("insist", "write", "words"),
    [
        (
            scale,
            "patch deployments/chat-router",
            'Deployment chat-router: "autoscaler" changes spec.replicas each time',
        ),
        (drop, "patch networkpolicies/chat-workers", "NetworkPolicy chat-workers: it is deleted each time"),
    ],
)
def test_a_controller_that_insists_is_named_and_the_writes_are_bounded(
    bed: Bed, space: str, tmp_path: Path, insist: Callable[[ApiClient, str], None], write: str, words: str
) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), service("other"), namespace=space)
        settled(bed, space, quiet_s=1.5)
        offset = bed.audit_log.stat().st_size
        with insisting(bed, space, insist):
            end = time.monotonic() + FIGHT_S
            wait_until(lambda: reconciled(bed, space) == ("False", "FieldConflict"), PATIENCE_S, "it is named")
            assert condition(bed, space, "Reconciled")["message"].startswith(words)
            bed.apply(service("other", router={"replicas": 2}), namespace=space)
            wait_until(lambda: replicas(bed, space, "other-router") == 2, PATIENCE_S, "another service is changed")
            assert reconciled(bed, space, "other") == ("True", "Applied")
            time.sleep(max(0.0, end - time.monotonic()))
            made = [line.strip() for line in writes(bed, space, offset)]
            took_s = time.monotonic() - end + FIGHT_S
        assert 4 <= made.count(write) <= MOST + took_s / 60, made
        assert len(made) <= 60, "its status and its events are bounded too"
        wait_until(lambda: reconciled(bed, space) == ("True", "Applied"), HEALED_S, "the conflict has settled")
        assert replicas(bed, space, "chat-router") == 1 and bed.get("networkpolicy", "chat-workers", space)


@pytest.mark.timeout(500)
def test_a_webhook_that_changes_what_is_written_is_named_and_the_writes_are_bounded(
    bed: Bed, space: str, tmp_path: Path
) -> None:
    path = "/spec/template/spec/containers/0/image"
    patch = [{"op": "replace", "path": path, "value": "mirror.example.com/router"}]
    with operator(bed.kubeconfig, tmp_path, space):
        with mutating(bed, space, tmp_path, "deployments", patch):
            offset = bed.audit_log.stat().st_size
            bed.apply(service(), namespace=space)
            wait_until(lambda: reconciled(bed, space) == ("False", "FieldConflict"), PATIENCE_S, "it is named")
            words = (
                "Deployment chat-router: an admission webhook changes spec.template.spec.containers[router].image as"
            )
            assert condition(bed, space, "Reconciled")["message"].startswith(words)
            time.sleep(FIGHT_S)
            made = [line.strip() for line in writes(bed, space, offset)]
            assert 4 <= made.count("patch deployments/chat-router") <= MOST + 2, made
            assert image(bed, space) == "mirror.example.com/router"
        wait_until(lambda: "mirror" not in image(bed, space), HEALED_S, "the image is the operator's again")
        wait_until(lambda: reconciled(bed, space) == ("True", "Applied"), HEALED_S, "the conflict has settled")


def image(bed: Bed, space: str) -> str:
    found: dict[str, Any] = bed.get("deployment", "chat-router", space) or {}
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


@pytest.mark.timeout(500)
def test_a_service_that_is_edited_ten_times_a_second_ends_as_desired_and_others_are_changed_within_a_second(
    bed: Bed, space: str, tmp_path: Path
) -> None:
    edits = [0]

    def edit(client: ApiClient, space: str) -> None:
        edits[0] += 1
        item = service(router={"replicas": 1 + edits[0] % 7})
        client.apply(item, space)

    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), service("other"), namespace=space)
        settled(bed, space, quiet_s=1.5)
        offset, began, changes = bed.audit_log.stat().st_size, time.monotonic(), 0
        with insisting(bed, space, edit, pause_s=0.1):
            while time.monotonic() < began + EDITS_S:
                changes += 1
                _change_other(bed, space, 1 + changes % 3)
                time.sleep(3.0)
        took_s = time.monotonic() - began
        made = [line.strip() for line in writes(bed, space, offset)]
        assert made.count("patch deployments/chat-router") <= 10 + took_s + 1
        assert made.count("patch inferenceservices/chat status") <= 10 + took_s + 1
        assert edits[0] > EDITS_S, "there were more edits than writes are permitted"
        last = 1 + edits[0] % 7
        wait_until(lambda: replicas(bed, space, "chat-router") == last, PATIENCE_S, "the last edit is applied")
        generation = (bed.get("infsvc", "chat", space) or {})["metadata"]["generation"]
        wait_until(
            lambda: (bed.get("infsvc", "chat", space) or {})["status"]["observedGeneration"] == generation,
            PATIENCE_S,
            "the status is that of the last edit",
        )
        assert reconciled(bed, space)[1] == reconciled(bed, space, "other")[1] == "Applied"


def _change_other(bed: Bed, space: str, number: int) -> None:
    bed.apply(service("other", router={"replicas": number}), namespace=space)
    wait_until(lambda: replicas(bed, space, "other-router") == number, OTHERS_S, "another service is changed")
