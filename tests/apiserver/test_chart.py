"""The chart: the API server takes what it renders, and its roles are small."""

from typing import Any

import pytest
import yaml
from support.cluster.bed import Bed
from support.cluster.chart import CHART, helm, render

from octavo.operator.main import parse_arguments

VARIANTS = {
    "default": [],
    "cluster": ["--set", "scope=cluster"],
    "no crd": ["--set", "crds.install=false"],
    "all on": [
        "--set",
        "hostPathAllow={/srv/models},imageAllow={ghcr.io/octavo},replicas=1,"
        "priorityClassName=system-cluster-critical,images.pullSecrets={a,b}",
    ],
    "no guard": ["--set", "guard=false"],
    "no nodes": ["--set", "readNodes=false"],
    "a test with keys": ["--set", "test.apiKeys.secretName=clients"],
}


def _rules(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for item in objects if item["kind"] in ("Role", "ClusterRole") for rule in item["rules"]]


def test_the_chart_passes_helms_own_check(bed: Bed) -> None:
    done = helm(bed, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_api_server_takes_all_that_the_chart_renders(bed: Bed, variant: str) -> None:
    with bed.namespace("chart", **{"pod-security.kubernetes.io/enforce": "restricted"}) as space:
        objects = render(bed, space, *VARIANTS[variant])
        text = "\n---\n".join(yaml.safe_dump(item) for item in objects)
        said = bed.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=text)
        assert said.count("serverside-applied") == len(objects)
        assert any(item["kind"] == "CustomResourceDefinition" for item in objects) == (variant != "no crd")


@pytest.mark.parametrize(
    "flag",
    [
        "replica=3",
        "images.workers=x",
        "crds.installed=true",
        "scope=everywhere",
        "replicas=two",
        "hostPathAllow={data}",
    ],
)
def test_an_unknown_or_wrong_value_is_refused(bed: Bed, flag: str) -> None:
    done = helm(bed, "template", "octavo", str(CHART), "--set", flag)
    assert done.returncode != 0
    assert flag.split("=")[0].split(".")[-1] in done.stderr


def test_the_crd_is_kept_when_the_release_goes(bed: Bed) -> None:
    rendered = helm(bed, "template", "octavo", str(CHART)).stdout
    assert rendered.count("helm.sh/resource-policy") == 1
    crd = next(item for item in render(bed, "x") if item["kind"] == "CustomResourceDefinition")
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_no_rule_has_a_wildcard(bed: Bed) -> None:
    for rule in _rules(render(bed, "x", "--set", "scope=cluster")):
        for part in ("apiGroups", "resources", "verbs"):
            assert "*" not in "".join(rule[part]), rule


def test_by_default_the_only_power_beyond_the_namespace_is_to_look_at_nodes(bed: Bed) -> None:
    wide = [rule for item in render(bed, "x") if item["kind"] == "ClusterRole" for rule in item["rules"]]
    assert wide == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    assert not [item for item in render(bed, "x", "--set", "readNodes=false") if item["kind"].startswith("ClusterRole")]


def test_the_allow_lists_reach_the_operator(bed: Bed) -> None:
    lists = "hostPathAllow={/srv/models,/data},imageAllow={ghcr.io/octavo,mirror:5000},apiServerPorts={443,8443}"
    objects = render(bed, "x", "--set", lists)
    (operator,) = [item for item in objects if item["kind"] == "Deployment"]
    flags = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    config = parse_arguments([flag for flag in flags if "$(" not in flag])
    assert config.options.host_path_allow == ("/srv/models", "/data")
    assert config.options.image_allow == ("ghcr.io/octavo", "mirror:5000")
    assert config.options.api_server_ports == (443, 8443)
    plain = parse_arguments([])
    assert (plain.options.host_path_allow, plain.options.image_allow) == ((), ())


def test_namespaces_are_refused_for_the_scope_of_all_of_them(bed: Bed) -> None:
    done = helm(bed, "template", "octavo", str(CHART), "--set", "scope=cluster,namespaces={blue}")
    assert done.returncode != 0 and "namespaces needs scope: namespace" in done.stderr


def test_the_test_pod_asks_the_service_for_a_completion(bed: Bed) -> None:
    pod = next(item for item in render(bed, "x", "--set", "test.service=talk") if item["kind"] == "Pod")
    script, url = pod["spec"]["containers"][0]["args"]
    assert script.strip() == (CHART / "files/request_completion.py").read_text().strip()
    compile(script, "test pod", "exec")
    assert url == "http://talk.x:80/v1" and pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    kept = pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    assert kept == "before-hook-creation", "helm test --logs reads the log of a pod that is still there"


def test_the_test_pod_asks_with_a_key_where_one_is_needed(bed: Bed) -> None:
    flags = ("test.namespace=far", "test.port=81", "test.apiKeys.secretName=clients", "test.apiKeys.key=mine.txt")
    (pod,) = [item for item in render(bed, "x", *(f"--set={flag}" for flag in flags)) if item["kind"] == "Pod"]
    (container,) = pod["spec"]["containers"]
    assert container["args"][1:] == ["http://chat.far:81/v1", "/etc/octavo/api/mine.txt"]
    assert pod["spec"]["volumes"] == [{"name": "keys", "secret": {"secretName": "clients", "defaultMode": 0o444}}]
    assert container["volumeMounts"] == [{"name": "keys", "mountPath": "/etc/octavo/api", "readOnly": True}]
