"""What the API server refuses, by a quota, a policy or a missing permission, is a condition with its words, and goes by
itself; other objects and other services go on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import Operator, condition, operator, service, settled

CHART = Path(__file__).parents[2] / "charts/octavo"
HEALED_S = 120  # the longest back-off is 60 s
Rules = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def reconciled(bed: Bed, space: str) -> tuple[str, str]:
    found = condition(bed, space, "Reconciled")
    return found.get("status", ""), found.get("reason", "")


def test_a_quota_of_objects_is_named_with_the_object_and_goes(bed: Bed, space: str, tmp_path: Path) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/deployments.apps": "0"}}}
    bed.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota}, namespace=space)
    wait_until(
        lambda: (bed.get("resourcequota", "none", space) or {}).get("status", {}).get("hard"), 20, "the quota holds"
    )
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        wait_until(lambda: reconciled(bed, space) == ("False", "QuotaExceeded"), 30, "Reconciled says QuotaExceeded")
        said = condition(bed, space, "Reconciled")["message"]
        assert said.startswith("apply Deployment chat-router: ") and "exceeded quota: none" in said
        assert {condition(bed, space, kind)["reason"] for kind in ("Degraded", "Stalled")} == {"QuotaExceeded"}
        assert bed.get("statefulset", "chat-0", space), "the others are created"
        bed.kubectl("delete", "resourcequota", "none", "-n", space)
        wait_until(lambda: reconciled(bed, space) == ("True", "Applied"), HEALED_S, "Reconciled again")
        assert {condition(bed, space, kind)["status"] for kind in ("Degraded", "Stalled")} == {"False"}


@pytest.fixture
def policy(bed: Bed, space: str) -> Iterator[str]:
    """A policy that refuses StatefulSets of the namespace without a team."""
    rules = [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["statefulsets"]}]
    expression = "has(object.metadata.annotations) && 'team' in object.metadata.annotations"
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": expression, "message": "a StatefulSet needs a team"}],
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}}}
    binding = {"policyName": space, "validationActions": ["Deny"], "matchResources": here}
    for kind, body in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", binding)):
        version = "admissionregistration.k8s.io/v1"
        bed.apply({"apiVersion": version, "kind": kind, "metadata": {"name": space}, "spec": body})
    probe = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "probe"}}
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    probe["spec"] = {"serviceName": "x", "selector": {"matchLabels": labels}, "template": template}
    wait_until(lambda: _refused(bed, probe, space), 60, "the policy holds")
    yield space
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        bed.client.delete(kind, space)


def _refused(bed: Bed, item: dict[str, Any], space: str) -> bool:
    try:
        bed.client.check(item, space)
    except Exception as error:  # whatever it is, its words are looked at
        return "needs a team" in str(error)
    return False


def test_a_policys_words_are_in_the_status_until_it_permits_the_object(
    bed: Bed, space: str, policy: str, tmp_path: Path
) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(), namespace=space)
        wait_until(lambda: reconciled(bed, space) == ("False", "WriteRefused"), 30, "Reconciled says WriteRefused")
        for kind in ("Reconciled", "Ready", "Progressing", "Degraded", "Stalled"):
            said = condition(bed, space, kind)["message"]
            assert said.startswith("apply StatefulSet chat-0: ") and "a StatefulSet needs a team" in said
        assert bed.get("deployment", "chat-router", space), "the routers are created"
        bed.client.delete("validatingadmissionpolicybinding", policy)
        wait_until(lambda: bed.get("statefulset", "chat-0", space), HEALED_S, "the group, once it is permitted")
        wait_until(lambda: reconciled(bed, space) == ("True", "Applied"), 30, "Reconciled again")


def role(bed: Bed, space: str, change: Rules = lambda rules: rules) -> None:
    """The chart's permissions, changed, for the account `limited`."""
    rendered = yaml.safe_load_all(bed.helm("template", "octavo", str(CHART), "-n", space))
    rules = [rule for item in rendered if item and item["kind"] == "Role" for rule in item["rules"]]
    about = {"metadata": {"name": "limited"}}
    rbac = "rbac.authorization.k8s.io"
    bed.apply({"apiVersion": f"{rbac}/v1", "kind": "Role", **about, "rules": change(rules)}, namespace=space)


@pytest.fixture
def limited(bed: Bed, space: str, tmp_path: Path) -> Path:
    """A kubeconfig of an account that has the permissions of `role`."""
    about = {"metadata": {"name": "limited"}}
    rbac = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": "limited", "namespace": space}]
    binding = {"roleRef": {"apiGroup": rbac, "kind": "Role", "name": "limited"}, "subjects": subjects}
    bed.apply({"apiVersion": "v1", "kind": "ServiceAccount", **about}, namespace=space)
    bed.apply({"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", **about, **binding}, namespace=space)
    config = yaml.safe_load(bed.kubeconfig.read_text())
    token = bed.kubectl("create", "token", "limited", "-n", space).strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = tmp_path / "limited.conf"
    path.write_text(yaml.safe_dump(config))
    return path


def without(resource: str, *verbs: str) -> Rules:
    """The rules without these verbs on the resource."""

    def change(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
        changed = []
        for rule in rules:
            others = [name for name in rule["resources"] if name != resource]
            kept = [verb for verb in rule["verbs"] if verb not in verbs]
            if resource in rule["resources"]:
                changed += [{**rule, "resources": others}] if others else []
                changed += [{**rule, "resources": [resource], "verbs": kept}] if kept else []
            else:
                changed.append(rule)
        return changed

    return change


def test_a_permission_to_write_that_is_missing_is_named_and_used_once_it_is_there(
    bed: Bed, space: str, limited: Path, tmp_path: Path
) -> None:
    role(bed, space, without("poddisruptionbudgets", "create", "patch"))
    with operator(limited, tmp_path, space):
        bed.apply(service(), namespace=space)
        wait_until(lambda: reconciled(bed, space) == ("False", "WriteRefused"), 30, "Reconciled says WriteRefused")
        said = condition(bed, space, "Reconciled")["message"]
        assert said.startswith("apply PodDisruptionBudget chat-") and "cannot patch resource" in said
        assert bed.get("statefulset", "chat-0", space) and bed.get("deployment", "chat-router", space)
        role(bed, space)
        wait_until(lambda: reconciled(bed, space) == ("True", "Applied"), HEALED_S, "Reconciled again")
        assert bed.get("pdb", "chat-workers", space)


def test_a_permission_that_is_lost_while_the_operator_runs_is_named_where_it_is_needed_and_used_when_it_is_back(
    bed: Bed, space: str, limited: Path, tmp_path: Path
) -> None:
    role(bed, space)
    with operator(limited, tmp_path, space):
        bed.apply(service(), service("other"), namespace=space)
        settled(bed, space)
        role(bed, space, without("networkpolicies", "create", "patch"))
        bed.kubectl("delete", "networkpolicy", "chat-router", "-n", space)
        wait_until(lambda: reconciled(bed, space) == ("False", "WriteRefused"), 60, "Reconciled says WriteRefused")
        said = condition(bed, space, "Reconciled")["message"]
        assert said.startswith("apply NetworkPolicy chat-router: ") and "cannot patch resource" in said
        bed.apply(service("other", replicas=2), namespace=space)
        wait_until(lambda: bed.get("statefulset", "other-1", space), 30, "another service is changed meanwhile")
        assert condition(bed, space, "Reconciled", "other")["status"] == "True"
        role(bed, space)
        wait_until(lambda: reconciled(bed, space) == ("True", "Applied"), HEALED_S, "Reconciled again")
        assert bed.get("networkpolicy", "chat-router", space)


def test_a_kind_that_may_not_be_listed_does_not_stop_the_operator(
    bed: Bed, space: str, limited: Path, tmp_path: Path
) -> None:
    role(bed, space, without("networkpolicies", "list", "watch"))
    with operator(limited, tmp_path, space) as one:
        bed.apply(service(), namespace=space)
        wait_until(lambda: reconciled(bed, space) == ("False", "KindUnreadable"), 30, "Reconciled says KindUnreadable")
        said = condition(bed, space, "Reconciled")["message"]
        assert "may not list and watch NetworkPolicy: " in said and "cannot list resource" in said
        wait_until(lambda: bed.get("statefulset", "chat-0", space), 30, "the group")
        assert bed.get("networkpolicy", "chat-workers", space), "it may be written"
        assert one.get("/livez") == one.get("/readyz") == 200
        role(bed, space)
        wait_until(lambda: reconciled(bed, space) == ("True", "Applied"), HEALED_S, "Reconciled again")


def test_without_permission_to_list_pods_nothing_is_changed_and_ready_is_unknown(
    bed: Bed, space: str, limited: Path, tmp_path: Path
) -> None:
    role(bed, space)
    with operator(limited, tmp_path, space) as one:
        bed.apply(service(), namespace=space)
        settled(bed, space)
        assert one.stop() == 0
    role(bed, space, without("pods", "list", "watch"))
    bed.kubectl("scale", "infsvc/chat", "--replicas=2", "-n", space)
    with operator(limited, tmp_path, space) as one:
        wait_until(lambda: condition(bed, space, "Ready").get("status") == "Unknown", 30, "Ready is Unknown")
        assert "may not list and watch Pod: " in condition(bed, space, "Ready")["message"]
        assert bed.get("statefulset", "chat-1", space) is None
        role(bed, space)
        wait_until(lambda: bed.get("statefulset", "chat-1", space), HEALED_S, "the second group")
        wait_until(lambda: condition(bed, space, "Ready").get("status") == "False", 30, "Ready is known")
        assert isinstance(one, Operator) and one.get("/livez") == 200
