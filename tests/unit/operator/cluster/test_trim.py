"""The caches keep what is read of an object, and no more."""

import json
from pathlib import Path

from octavo.operator.cluster.kube import FIELD_MANAGER
from octavo.operator.cluster.trim import trim
from octavo.operator.planning.apply_diff import fields_to_remove

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
