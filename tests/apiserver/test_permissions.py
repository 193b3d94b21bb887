"""The operator uses all of its permissions, and its account cannot be used for more than its own objects."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.bed import Bed, BedError, wait_until
from support.cluster.chart import access, granted, render
from support.cluster.operators import Operator, condition, service, settled

Json = dict[str, Any]  # Any: Kubernetes JSON
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
OF_ROUTERS = {("discovery.k8s.io", "endpointslices", verb) for verb in ("list", "watch")}  # granted to be passed on
FORCE_S = 60  # the operator deletes a pod of a node that is gone by force after 20 s


def test_the_operator_uses_every_permission_of_the_chart_and_needs_no_other(bed: Bed, tmp_path: Path) -> None:
    with bed.namespace("chart", **RESTRICTED) as space, access(bed, space) as user:
        began = bed.audit_log.stat().st_size
        one = Operator(_login(bed, space, tmp_path), tmp_path, "--namespace", space, "--lease-namespace", space)
        try:
            _do_everything(bed, one.ready(), space)
            used, refused = _calls(bed, user, began)
        finally:
            one.kill()
        assert refused == set()
        assert not re.search(r"(?<!,)\b403\b|[Ff]orbidden", one.log.read_text())  # after a comma: milliseconds
        allowed = granted(render(bed, space))
        assert used <= allowed, "the audit log and RBAC have other names"
        assert allowed - used == OF_ROUTERS


def _do_everything(bed: Bed, one: Operator, space: str) -> None:
    """What makes the operator create, change and delete all that it ever does."""
    bed.apply(service(router={"replicas": 2}), namespace=space)
    for component in ("worker", "router"):
        wait_until(lambda: bed.objects("pods", space, f"octavo.dev/component={component}"), 60, f"a {component} pod")  # noqa: B023
    settled(bed, space)
    _lose(bed, "chat-0-0", space)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    bed.apply(quota, namespace=space)
    bed.kubectl("scale", "infsvc/chat", "--replicas=2", "-n", space)
    wait_until(lambda: condition(bed, space, "Degraded").get("reason") == "QuotaExceeded", 60, "the quota is named")
    bed.kubectl("scale", "infsvc/chat", "--replicas=1", "-n", space)
    wait_until(lambda: len(bed.objects("statefulsets", space, "octavo.dev/service=chat")) == 1, 60, "one group")
    bed.apply(service(router={"replicas": 2}, networkPolicy={"mode": "none"}), namespace=space)
    wait_until(lambda: not bed.objects("networkpolicies", space), 60, "no policies")
    bed.apply(service(router={"replicas": 2}, image="other", rollout={"historyLimit": 0}), namespace=space)
    wait_until(lambda: _kept_images(bed, space) == ["other"], 60, "one kept template")
    assert condition(bed, space, "Ready")["status"] == "False"
    assert one.leads


def _kept_images(bed: Bed, space: str) -> list[str]:
    """Of the workers' kept templates."""
    selector = "octavo.dev/service=chat,octavo.dev/component=worker,!octavo.dev/group"
    templates = [one["data"]["spec"]["template"] for one in bed.objects("controllerrevisions", space, selector)]
    return [template["spec"]["containers"][0]["image"] for template in templates]


def _lose(bed: Bed, name: str, space: str) -> None:
    """The pod is on a node that is gone, and a client deletes it: no kubelet confirms its end."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "gone"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    path = f"/api/v1/namespaces/{space}/pods/{name}/binding"
    bed.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    bed.kubectl("delete", "pod", name, "-n", space, "--wait=false")
    pod = bed.get("pod", name, space)
    assert pod is not None and pod["metadata"]["deletionGracePeriodSeconds"] == 120
    uid = pod["metadata"]["uid"]
    wait_until(
        lambda: (bed.get("pod", name, space) or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid,
        FORCE_S,
        "another pod of the name",
    )


def _calls(bed: Bed, user: str, offset: int) -> tuple[set[tuple[str, str, str]], set[str]]:
    """(API group, resource, verb) that the user has used, and what was refused. An apply that creates needs both."""
    used, refused = set[tuple[str, str, str]](), set[str]()
    with bed.audit_log.open("rb") as log:
        log.seek(offset)
        for line in log:
            event = json.loads(line) if user.encode() in line and line.endswith(b"\n") else {}
            about = event.get("objectRef") or {}
            if event.get("user", {}).get("username") != user or "resource" not in about:
                continue
            parts = [about["resource"], *([about["subresource"]] if "subresource" in about else [])]
            group, resource, verb = about.get("apiGroup", ""), "/".join(parts), event["verb"]
            code = event.get("responseStatus", {}).get("code", 200)
            if code == 403:
                refused.add(f"{verb} {group}/{resource}: {event['responseStatus'].get('message')}")
            used.add((group, resource, verb))
            if verb == "patch" and code == 201:
                used.add((group, resource, "create"))
    return used, refused


def _login(bed: Bed, space: str, folder: Path) -> Path:
    """A kubeconfig with the token of the chart's service account."""
    token = bed.kubectl("create", "token", "octavo-operator", "-n", space).strip()
    config = yaml.safe_load(bed.kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["sub"].endswith(":octavo-operator")
    path = folder / "account.conf"
    path.write_text(yaml.safe_dump(config))
    return path


OWNER = {"apiVersion": "octavo.dev/v1alpha1", "kind": "InferenceService", "name": "chat", "uid": "uid-chat"}


def secret(name: str, *, owner: Json | None = OWNER, **more: Any) -> Json:
    metadata: Json = {"name": name, **({"ownerReferences": [owner]} if owner else {}), **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", **more}


def pods(kind: str, name: str, **spec: Any) -> Json:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}
    more = {"serviceName": "x"} if kind == "StatefulSet" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "ownerReferences": [OWNER]},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **more},
    }


TOKEN = {"kubernetes.io/service-account.name": "default"}
NO_TOKEN = {"automountServiceAccountToken": False}
HOST = {"volumes": [{"name": "v", "hostPath": {"path": "/var/run"}}]}
FORBIDDEN: dict[str, tuple[Json, str]] = {
    "the token of an account": (
        secret("chat-ca", type="kubernetes.io/service-account-token", metadata={"annotations": TOKEN}),
        "type Opaque",
    ),
    "a Secret of another name": (secret("loot"), "NAME-ca"),
    "a Secret of no service": (secret("chat-ca", owner=None), "owns them"),
    "a Secret of another service": (secret("talk-ca"), "NAME-ca"),
    "a Secret of another owner": (secret("chat-worker-tls"), "take over"),
    "a pod that runs as another account": (pods("Deployment", "chat-router", serviceAccountName="boss"), "token"),
    "a group with a token": (pods("StatefulSet", "chat-0"), "token"),
    "a group with a mounted token": (
        pods(
            "StatefulSet",
            "chat-0",
            volumes=[{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
            **NO_TOKEN,
        ),
        "mount an account's token",
    ),
    "a folder of a node": (pods("StatefulSet", "chat-0", **NO_TOKEN, **HOST), "hostPathAllow"),
    "the network of a node": (pods("StatefulSet", "chat-0", hostNetwork=True, **NO_TOKEN), "namespaces of a node"),
}
PERMITTED = {
    "its own Secret": secret("chat-router-tls"),
    "routers": pods("Deployment", "chat-router", serviceAccountName="chat-router"),
    "a group": pods("StatefulSet", "chat-0", **NO_TOKEN),
}


@pytest.fixture(scope="module")
def guarded(bed: Bed) -> Iterator[tuple[str, str]]:
    """(namespace of a tenant, user name of an operator of all namespaces), once the chart's policies are in effect."""
    with (
        bed.namespace("guard") as home,
        bed.namespace("tenant") as tenant,
        access(bed, home, "--set", "scope=cluster") as user,
    ):
        theirs = secret("chat-worker-tls", owner={**OWNER, "kind": "Other", "uid": "uid-other"})
        bed.apply(theirs, namespace=tenant)
        for what in ("a Secret of another name", "a group with a token"):
            wait_until(lambda: _refusal(bed, user, tenant, FORBIDDEN[what][0]), 60, "the policies")  # noqa: B023
        yield tenant, user


def _refusal(bed: Bed, user: str, space: str, item: Json) -> str:
    """Words of the API server; "" where the user may write the object."""
    flags = ("--server-side", "--force-conflicts", "--dry-run=server", f"--as={user}", "-n", space, "-f", "-")
    try:
        bed.kubectl("apply", *flags, stdin=json.dumps(item))
    except BedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_operators_account_cannot_be_used_for(bed: Bed, guarded: tuple[str, str], what: str) -> None:
    space, user = guarded
    item, message = FORBIDDEN[what]
    said = _refusal(bed, user, space, item)
    assert "ValidatingAdmissionPolicy" in said and message in said


@pytest.mark.parametrize("what", PERMITTED)
def test_the_operators_account_may_write(bed: Bed, guarded: tuple[str, str], what: str) -> None:
    space, user = guarded
    assert _refusal(bed, user, space, PERMITTED[what]) == ""


def test_the_policies_are_in_effect_for_no_other_account(bed: Bed, guarded: tuple[str, str]) -> None:
    space, _ = guarded
    for what in ("a Secret of another name", "a folder of a node", "the network of a node"):
        bed.kubectl("apply", "--dry-run=server", "-n", space, "-f", "-", stdin=json.dumps(FORBIDDEN[what][0]))


def test_a_list_of_namespaces_grants_roles_in_them_and_nothing_elsewhere(bed: Bed) -> None:
    objects = render(bed, "home", "--set", "namespaces={blue,green},readNodes=false")
    roles = [item for item in objects if item["kind"] in ("Role", "RoleBinding")]
    places = {item["metadata"]["namespace"] for item in roles if not item["metadata"]["name"].endswith("-lease")}
    assert places == {"blue", "green"}
    assert not [item for item in objects if item["kind"].startswith("ClusterRole")]
    for item in roles:
        for subject in item.get("subjects", ()):
            assert (subject["name"], subject["namespace"]) == ("octavo-operator", "home")
    (operator,) = [item for item in objects if item["kind"] == "Deployment"]
    flags = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [flag for flag in flags if flag.startswith("--namespace")] == ["--namespace=blue", "--namespace=green"]


@pytest.mark.parametrize(
    ("flags", "places"),
    [
        ("scope=cluster", {"", "home"}),
        ("namespaces={blue,green}", {"blue", "green", "home"}),
        ("scope=namespace", {"home"}),
    ],
)
def test_the_lease_of_each_namespace_may_be_taken_and_no_other_renewed(bed: Bed, flags: str, places: set[str]) -> None:
    objects = render(bed, "home", "--set", flags)
    found: dict[str, set[tuple[str, ...]]] = {}
    for item in objects:
        for rule in item.get("rules", ()):
            if "leases" in rule["resources"]:
                verbs = found.setdefault(item["metadata"].get("namespace", ""), set())
                verbs.add((*rule["verbs"], *rule.get("resourceNames", ())))
    assert found == {place: {("create",), ("get", "update", "octavo-operator")} for place in places}
