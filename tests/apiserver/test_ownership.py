"""The operator touches only what is its own, and keeps that as it desires it."""

import time
from pathlib import Path
from typing import Any

from support.cluster.bed import Bed, wait_until
from support.cluster.operators import condition, operator, service, settled, writes


def _foreign_service(space: str) -> dict[str, Any]:
    ports = [{"port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": space},
        "spec": {"ports": ports},
    }


def test_a_foreign_service_of_our_name_is_left_alone(bed: Bed, space: str, tmp_path: Path) -> None:
    bed.apply(_foreign_service(space))
    before = bed.get("service", "chat", space)
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        wait_until(
            lambda: condition(bed, space, "Ready").get("reason") == "NameConflict", 20, "Ready says NameConflict"
        )
        assert "Service chat" in condition(bed, space, "Ready")["message"]
        settled(bed, space)
        assert bed.get("service", "chat", space) == before
        bed.kubectl("delete", "service", "chat", "-n", space)
        wait_until(lambda: condition(bed, space, "Ready").get("reason") != "NameConflict", 30, "NameConflict goes")
        made = wait_until(lambda: bed.get("service", "chat", space), 30, "our own Service")
        assert made["metadata"]["ownerReferences"][0]["kind"] == "InferenceService"


def test_a_foreign_secret_never_becomes_the_authority(bed: Bed, space: str, tmp_path: Path) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "chat-ca"},
        "stringData": {"tls.crt": "one", "tls.key": "two"},
    }
    bed.apply(secret, namespace=space)
    before = bed.get("secret", "chat-ca", space)
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        wait_until(
            lambda: condition(bed, space, "Ready").get("reason") == "NameConflict", 20, "Ready says NameConflict"
        )
        assert bed.get("secret", "chat-ca", space) == before
        assert bed.get("secret", "chat-worker-tls", space) is None


def test_deleted_objects_come_back(bed: Bed, space: str, tmp_path: Path) -> None:
    children = [
        ("deployment", "chat-router"),
        ("service", "chat-ranks"),
        ("networkpolicy", "chat-workers"),
        ("secret", "chat-worker-tls"),
    ]
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        settled(bed, space, quiet_s=1.5)
        old = {name: _uid(bed.get(kind, name, space)) for kind, name in children}
        groups = _groups(bed, space)
        assert None not in old.values() and len(groups) == 1
        for kind, name in [("statefulset", "chat-0"), *children]:
            bed.kubectl("delete", kind, name, "-n", space)
        # chat-0, or chat-1 while pods of chat-0 are on their way out.
        wait_until(lambda: _groups(bed, space) - groups, 60, "a group is back")
        for kind, name in children:
            wait_until(lambda: _uid(bed.get(kind, name, space)) not in (None, old[name]), 60, f"{kind} {name} is back")  # noqa: B023


def test_routers_are_replaced_once_when_their_account_was_created_again(bed: Bed, space: str, tmp_path: Path) -> None:
    """Tokens of the earlier account are void."""

    def routers() -> list[dict[str, Any]]:
        return bed.objects("pods", space, "octavo.dev/service=chat,octavo.dev/component=router")

    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        wait_until(routers, 60, "a router pod")
        (before,) = routers()
        time.sleep(1.1)  # the API server's times are whole seconds
        old = _uid(bed.get("serviceaccount", "chat-router", space))
        bed.kubectl("delete", "serviceaccount", "chat-router", "-n", space)
        wait_until(lambda: _uid(bed.get("serviceaccount", "chat-router", space)) not in (None, old), 60, "an account")
        new = _uid(bed.get("serviceaccount", "chat-router", space))
        wait_until(lambda: any(_uid(pod) != _uid(before) for pod in routers()), 60, "another router pod")
        settled(bed, space)
        found = bed.get("deployment", "chat-router", space)
        assert found is not None and found["metadata"]["generation"] == 2
        assert found["spec"]["template"]["metadata"]["annotations"] == {"octavo.dev/account": new}


def test_drift_is_corrected_and_fields_of_others_stay(bed: Bed, space: str, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        settled(bed, space, quiet_s=1.5)
        bed.kubectl("annotate", "deployment/chat-router", "team=search", "-n", space)
        bed.kubectl("scale", "deployment/chat-router", "--replicas=4", "-n", space)
        wait_until(lambda: _replicas(bed.get("deployment", "chat-router", space)) == 1, 20, "the routers are one again")
        kept = bed.get("deployment", "chat-router", space)
        assert kept is not None and kept["metadata"]["annotations"]["team"] == "search"


def test_deletion_ends_without_any_operator(bed: Bed, space: str, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        settled(bed, space, quiet_s=1.5)
        resource = bed.get("infsvc", "chat", space)
        assert resource is not None and "finalizers" not in resource["metadata"]
        assert "annotations" not in resource["metadata"]
    bed.kubectl("delete", "infsvc", "chat", "-n", space, "--timeout=20s")
    mine = "octavo.dev/service=chat"
    kinds = "statefulsets,controllerrevisions,deployments,services,secrets,pdb,networkpolicies,roles,rolebindings"
    kinds += ",serviceaccounts"
    wait_until(lambda: not bed.objects(kinds, space, mine), 60, "all objects of the service are gone")


def test_the_first_look_at_a_refused_write_does_not_stop_the_others(bed: Bed, space: str, tmp_path: Path) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"count/deployments.apps": "0"}},
    }
    bed.apply(quota, namespace=space)
    wait_until(
        lambda: (bed.get("resourcequota", "none", space) or {}).get("status", {}).get("hard"), 20, "the quota holds"
    )
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        wait_until(lambda: bed.get("statefulset", "chat-0", space), 20, "the group, made after the refused Deployment")
        assert bed.get("deployment", "chat-router", space) is None
        assert any("events" in line for line in writes(bed, space))  # the refusal is an event
        bed.kubectl("delete", "resourcequota", "none", "-n", space)
        wait_until(lambda: bed.get("deployment", "chat-router", space), 90, "the Deployment, once it is allowed")


def _groups(bed: Bed, space: str) -> set[str]:
    return {item["metadata"]["uid"] for item in bed.objects("statefulsets", space, "octavo.dev/service=chat")}


def _uid(item: dict[str, Any] | None) -> str | None:
    return None if item is None else str(item["metadata"]["uid"])


def _replicas(item: dict[str, Any] | None) -> int | None:
    return None if item is None else int(item["spec"]["replicas"])
