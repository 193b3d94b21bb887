"""The caches keep what is read of an object, and no more."""

import json
from pathlib import Path
from typing import Any

from support.cluster.services import service

from octavo.operator.cluster.kube import FIELD_MANAGER
from octavo.operator.cluster.trim import trim
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
    kept = service_revision()
    trimmed = trim(kept)
    assert isinstance(trimmed["data"], str) and unchanged(trimmed, kept, FIELD_MANAGER)
    other = {**kept, "data": {"spec": {"template": {"spec": {"containers": [{"image": "other"}]}}}}}
    assert not unchanged(trimmed, other, FIELD_MANAGER)
    (found,) = kept_workers("chat", [trimmed]).values()
    assert found.template == kept["data"]["spec"]["template"]


def service_revision() -> dict[str, Any]:
    planned = plan(service(), Snapshot(), Options(), 0.0)
    return next(
        dict(a.object) for a in planned.apply if (a.object["kind"], a.reason[-7:]) == ("ControllerRevision", "workers")
    )
