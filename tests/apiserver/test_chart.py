"""The chart: the API server takes what it renders, its roles are small, and the operator needs no more than them."""

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import Operator, condition, service, settled

CHART = Path(__file__).parents[2] / "charts/octavo"
VARIANTS = {
    "default": [],
    "cluster": ["--set", "scope=cluster"],
    "no crd": ["--set", "crds.install=false"],
    "all on": [
        "--set",
        "allowHostPath=true,replicas=1,priorityClassName=system-cluster-critical,images.pullSecrets={a,b}",
    ],
    "no nodes": ["--set", "readNodes=false"],
}


def _helm(bed: Bed, *args: str) -> subprocess.CompletedProcess[str]:
    command = [str(bed.binaries / "helm"), *args]
    return subprocess.run(command, env=bed.environment, capture_output=True, text=True, timeout=60, check=False)


def _render(bed: Bed, namespace: str, *flags: str) -> list[dict[str, Any]]:
    done = _helm(bed, "template", "octavo", str(CHART), "-n", namespace, *flags)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def _rules(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for item in objects if item["kind"] in ("Role", "ClusterRole") for rule in item["rules"]]


def test_the_chart_passes_helms_own_check(bed: Bed) -> None:
    done = _helm(bed, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_api_server_takes_all_that_the_chart_renders(bed: Bed, variant: str) -> None:
    with bed.namespace("chart", **{"pod-security.kubernetes.io/enforce": "restricted"}) as space:
        objects = _render(bed, space, *VARIANTS[variant])
        text = "\n---\n".join(yaml.safe_dump(item) for item in objects)
        said = bed.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=text)
        assert said.count("serverside-applied") == len(objects)
        assert any(item["kind"] == "CustomResourceDefinition" for item in objects) == (variant != "no crd")


@pytest.mark.parametrize(
    "flag", ["replica=3", "images.workers=x", "crds.installed=true", "scope=everywhere", "replicas=two"]
)
def test_an_unknown_or_wrong_value_is_refused(bed: Bed, flag: str) -> None:
    done = _helm(bed, "template", "octavo", str(CHART), "--set", flag)
    assert done.returncode != 0
    assert flag.split("=")[0].split(".")[-1] in done.stderr


def test_the_crd_is_kept_when_the_release_goes(bed: Bed) -> None:
    rendered = _helm(bed, "template", "octavo", str(CHART)).stdout
    assert rendered.count("helm.sh/resource-policy") == 1
    crd = next(item for item in _render(bed, "x") if item["kind"] == "CustomResourceDefinition")
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_no_rule_has_a_wildcard(bed: Bed) -> None:
    for rule in _rules(_render(bed, "x", "--set", "scope=cluster")):
        for part in ("apiGroups", "resources", "verbs"):
            assert "*" not in "".join(rule[part]), rule


def test_by_default_the_only_power_beyond_the_namespace_is_to_look_at_nodes(bed: Bed) -> None:
    wide = [rule for item in _render(bed, "x") if item["kind"] == "ClusterRole" for rule in item["rules"]]
    assert wide == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    assert not [
        item for item in _render(bed, "x", "--set", "readNodes=false") if item["kind"].startswith("ClusterRole")
    ]


def test_the_operator_works_with_the_charts_role_and_no_more(bed: Bed, tmp_path: Path) -> None:
    with bed.namespace("chart", **{"pod-security.kubernetes.io/enforce": "restricted"}) as space:
        for item in _render(bed, space):
            if item["kind"] in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
                bed.apply(item)
        one = Operator(_login(bed, space, tmp_path), tmp_path, "--namespace", space, "--lease-namespace", space)
        try:
            one.ready()
            bed.apply(service(), namespace=space)
            wait_until(lambda: bed.get("statefulset", "chat-0", space), 20, "the group")
            settled(bed, space)
            bed.kubectl("scale", "infsvc/chat", "--replicas=2", "-n", space)
            wait_until(lambda: bed.get("statefulset", "chat-1", space), 20, "the second group")
            bed.kubectl("scale", "infsvc/chat", "--replicas=1", "-n", space)
            wait_until(lambda: len(bed.objects("statefulsets", space, "octavo.dev/service=chat")) == 1, 60, "one group")
            assert condition(bed, space, "Ready")["status"] == "False"
            wait_until(lambda: bed.objects("pods", space, "octavo.dev/component=worker"), 20, "a restricted worker pod")
            wait_until(lambda: bed.objects("pods", space, "octavo.dev/component=router"), 20, "a restricted router pod")
            log = one.log.read_text()
            assert not re.search(r"(?<!,)\b403\b|[Ff]orbidden", log), log[-3000:]  # after a comma: milliseconds
        finally:
            one.kill()
            for item in _render(bed, space):
                if item["kind"] in ("ClusterRole", "ClusterRoleBinding"):
                    bed.kubectl("delete", item["kind"], item["metadata"]["name"])


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


def test_the_test_pod_asks_the_service_for_a_completion(bed: Bed) -> None:
    pod = next(item for item in _render(bed, "x", "--set", "test.service=talk") if item["kind"] == "Pod")
    script = pod["spec"]["containers"][0]["args"][0]
    compile(script, "test pod", "exec")
    assert "http://talk.x/v1" in script and pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
