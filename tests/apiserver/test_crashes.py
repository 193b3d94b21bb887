"""An operator that dies after any of its writes leaves nothing that the next one does not finish."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster.api_proxy import ApiProxy
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import Operator, operator, service, settled

KINDS = "statefulsets,controllerrevisions,deployments,services,serviceaccounts,roles,rolebindings,pdb,networkpolicies"
KINDS += ",secrets"
MOST_WRITES = 60


@pytest.mark.timeout(600)
def test_an_operator_killed_after_each_of_its_writes_converges(bed: Bed, tmp_path: Path) -> None:
    with bed.namespace("calm") as calm, bed.namespace("crash") as crash:
        with operator(bed.kubeconfig, tmp_path, calm):
            bed.apply(service(replicas=2), namespace=calm)
            settled(bed, calm)
        bed.apply(service(replicas=2), namespace=crash)
        with ApiProxy(bed.kubeconfig, tmp_path) as proxy:
            deaths = _die_after_every_write(bed, proxy, crash, tmp_path)
        assert deaths >= 15  # three Secrets, a dozen objects, two groups, the status
        assert _end_state(bed, crash) == _end_state(bed, calm)


def _die_after_every_write(bed: Bed, proxy: ApiProxy, space: str, folder: Path) -> int:
    """Start operators, each of which is killed at its first write, until one finds nothing left to write."""
    for deaths in range(MOST_WRITES):
        bed.client.delete("lease", "octavo-operator", space)  # it ran out
        crashing = Operator(proxy.kubeconfig, folder, "--namespace", space, "--lease-namespace", space)
        proxy.after_write = lambda number, crashing=crashing: crashing.process.kill()  # type: ignore[misc]
        before = len(proxy.writes)
        try:
            wait_until(lambda: len(proxy.writes) > before or _rests(crashing), 30, f"write {before + 1} or rest")  # noqa: B023
            if len(proxy.writes) == before:
                return deaths
            crashing.process.wait(10)
        finally:
            crashing.kill()
    raise AssertionError(f"still writing after {MOST_WRITES} deaths: {proxy.writes[-5:]}")


def _rests(one: Operator) -> bool:
    """It leads, and has looked at the service twice without a write."""
    return one.leads and one.metric("octavo_operator_reconcile_seconds_count") >= 2


def _end_state(bed: Bed, space: str) -> dict[str, Any]:
    """Everything that the operator made, less what differs between any two namespaces."""
    state = {}
    for item in bed.objects(KINDS, space, "octavo.dev/service=chat"):
        meta = item["metadata"]
        if meta["ownerReferences"][0]["kind"] == "StatefulSet":
            continue  # a ControllerRevision of the StatefulSet's, not the operator's
        kept: dict[str, Any] = {"labels": meta["labels"], "owners": [o["kind"] for o in meta["ownerReferences"]]}
        for part in ("spec", "rules", "roleRef"):
            kept[part] = item.get(part)
        if item["kind"] == "ControllerRevision":
            kept["data"] = item["data"]
        if item["kind"] == "Secret":
            kept["keys"] = {key: bool(base64.b64decode(value)) for key, value in item["data"].items()}
        for key in ("clusterIP", "clusterIPs"):
            (kept["spec"] or {}).pop(key, None)
        state[f"{item['kind']}/{meta['name']}"] = json.loads(
            json.dumps(kept).replace(space, "NS").replace(_uid(bed, space), "UID")
        )
    return state


def _uid(bed: Bed, space: str) -> str:
    found = bed.get("infsvc", "chat", space)
    assert found is not None
    return str(found["metadata"]["uid"])
