"""The caches keep what is read of an object, and no more."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster.services import service

from octavo.operator.cluster.kube import FIELD_MANAGER
from octavo.operator.cluster.trim import keeps_own_template, trim
from octavo.operator.groups.history import kept_workers
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.apply_diff import fields_to_remove, unchanged
from octavo.operator.planning.plan import plan

LIVE = json.loads((Path(__file__).parents[1] / "live_statefulset.json").read_text())


def test_fields_to_remove_are_found_in_a_trimmed_object() -> None:
    desired = {"metadata": {}, "spec": {}}
    found = list(fields_to_remove(LIVE, desired, FIELD_MANAGER))
    assert found and list(fields_to_remove(trim(LIVE), desired, FIELD_MANAGER)) == found


def test_what_others_own_is_not_kept() -> None:
    before = json.dumps(LIVE)
    kept = trim(LIVE)
    assert {entry["manager"] for entry in kept["metadata"]["managedFields"]} == {FIELD_MANAGER}
    assert kept["spec"] == LIVE["spec"] and json.dumps(LIVE) == before


def test_a_pod_keeps_its_node_its_secrets_and_its_status() -> None:
    keys = {"name": "keys", "secret": {"secretName": "clients", "items": [{"key": "keys", "path": "keys"}]}}
    volumes = [{"name": "tmp", "emptyDir": {}}, keys]
    spec = {"nodeName": "node1", "containers": [{"name": "worker"}], "volumes": volumes}
    pod = {"kind": "Pod", "metadata": {"name": "chat-0-0"}, "spec": spec, "status": {"phase": "Running"}}
    kept = trim(pod)
    assert kept["spec"] == {"nodeName": "node1", "volumes": [keys]} and kept["status"] == pod["status"]
    assert trim({"kind": "Pod", "metadata": {}})["spec"] == {}
    gates = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    assert trim({"kind": "Pod", "metadata": {}, "spec": {**gates, "tolerations": []}})["spec"] == gates


def test_a_kept_template_is_text_and_equal_to_what_it_was() -> None:
    live = service_revision()
    trimmed = trim(live)
    kept = {**live, "metadata": {key: live["metadata"][key] for key in live["metadata"] if key != "managedFields"}}
    assert isinstance(trimmed["data"], str) and unchanged(trimmed, kept, FIELD_MANAGER)
    other = {**kept, "data": {"spec": {"template": {"spec": {"containers": [{"image": "other"}]}}}}}
    assert not unchanged(trimmed, other, FIELD_MANAGER)
    (found,) = kept_workers("chat", [trimmed]).values()
    assert found.template == kept["data"]["spec"]["template"]


@pytest.mark.parametrize(("manager", "operation"), [("kubectl", "Apply"), (FIELD_MANAGER, "Update"), ("", "")])
def test_a_kept_template_that_another_client_has_written_is_not_believed(manager: str, operation: str) -> None:
    forged = service_revision()
    forged["metadata"]["managedFields"][0] |= {"manager": manager, "operation": operation}
    (found,) = kept_workers("chat", [trim(forged)]).values()
    assert found.template is None and not keeps_own_template(forged)


def test_a_note_of_ours_that_another_client_has_written_is_not_believed() -> None:
    ours, theirs = {"octavo.dev/served": "true"}, {"octavo.dev/down-since": "2020-01-01T00:00:00Z", "team": "search"}
    fields = {"f:metadata": {"f:annotations": {"f:octavo.dev/served": {}}}}
    entries = [
        {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields},
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:annotations": {}}}},
    ]
    meta = {"name": "chat-0", "annotations": {**ours, **theirs}, "managedFields": entries}
    kept = trim({"kind": "StatefulSet", "metadata": meta})
    assert kept["metadata"]["annotations"] == {**ours, "team": "search"}
    pod = trim({"kind": "Pod", "metadata": meta})
    assert pod["metadata"]["annotations"] == meta["annotations"], "a pod's are the ones of its template"


def service_revision() -> dict[str, Any]:
    """As the API server has it after our apply."""
    planned = plan(service(), Snapshot(), Options(), 0.0)
    made = next(
        dict(a.object) for a in planned.apply if (a.object["kind"], a.reason[-7:]) == ("ControllerRevision", "workers")
    )
    fields = {
        "f:data": {},
        "f:metadata": {"f:annotations": {f"f:{key}": {} for key in made["metadata"]["annotations"]}},
    }
    entry = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}
    return {**made, "metadata": {**made["metadata"], "managedFields": [entry]}}
