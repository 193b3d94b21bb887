"""`helm upgrade` to a newer release, CRD included, and `helm rollback`, under clients: no request is cut, no pod is
replaced."""

from pathlib import Path
from typing import Any

import pytest
from support.cluster import next_release
from support.cluster.bed import Cluster, locked, wait_until
from support.cluster.deployed import VALUES, Release, Service, is_ready
from support.cluster.traffic import Stream, Traffic
from support.patience import PATIENCE_S

TOKENS = 20_000  # of a stream that is open for most of the test
OPERATORS = "app.kubernetes.io/name=octavo-operator"


@pytest.mark.timeout(600, func_only=True)  # operators are replaced twice, and a group loads
def test_an_upgrade_and_a_rollback_cut_no_request_and_replace_no_pod(
    letters: Service, cluster: Cluster, tmp_path: Path
) -> None:
    release = letters.release
    next_release.push_operator(cluster)
    chart = next_release.chart(tmp_path)
    pods = {component: letters.pods(component) for component in ("worker", "router")}
    images = [f"images.{name}=localhost/octavo-{name}:next" for name in ("operator", "worker", "router")]
    changed = [part for value in (*images, "resources.limits.memory=500Mi") for part in ("--set", value)]
    # Other lanes install the CRD, too.
    with locked(cluster.state / "helm.lock"), Traffic(letters.client()) as traffic:
        stream = Stream(letters.address, TOKENS).wait_begun()
        release.helm("upgrade", "octavo", str(chart), "--values", str(VALUES), *changed, "--take-ownership", "--wait")
        _led_by(release, next_release.IMAGE)
        assert _default(cluster) is False, "the CRD came with the chart"
        letters.release.kubectl("scale", "infsvc/letters", "--replicas=2")
        letters.settled(2)  # by the kept template: there is no worker's image of the newer release
        assert letters.condition("SpecSupported")["status"] == "True"
        assert pods["worker"].items() <= letters.pods().items() and letters.pods("router") == pods["router"]

        release.helm("rollback", "octavo", "--wait")
        _led_by(release, "localhost/octavo-operator:test")
        assert _default(cluster) is None, "and went with it"
        letters.release.kubectl("scale", "infsvc/letters", "--replicas=1")
        letters.settled()
        seen = len(traffic.answered)
        wait_until(lambda: len(traffic.answered) > seen + 6, PATIENCE_S, "answers")
        assert {component: letters.pods(component) for component in pods} == pods
        assert stream.answer.broken == "" and not stream.answer.errors, "it goes on, or has come whole"
        stream.stop()
        assert stream.answer.text == _alphabet(len(stream.answer.text))


def _alphabet(length: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return (letters * (length // 26 + 2))[1 : length + 1]


def _led_by(release: Release, image: str) -> None:
    """Until all operators are of this image, ready, and one of them holds the Lease."""

    def led() -> bool:
        pods = release.bed.objects("pods", release.namespace, OPERATORS)
        of_image = {pod["metadata"]["name"] for pod in pods if is_ready(pod) and _image(pod) == image}
        leases = release.bed.objects("leases", release.namespace)
        return len(of_image) == len(pods) > 0 and any(_holder(lease) in of_image for lease in leases)

    wait_until(led, PATIENCE_S, f"operators of {image}")


def _holder(lease: dict[str, Any]) -> str:  # Any: JSON
    """Name of the pod that holds it."""
    return str(lease["spec"].get("holderIdentity") or "").rpartition("_")[0]


def _image(pod: dict[str, Any]) -> str:  # Any: JSON
    return str(pod["spec"]["containers"][0]["image"])


def _default(cluster: Cluster) -> object:
    """The default of the new field in the CRD; None if it has no such field."""
    crd = cluster.get("crd", "inferenceservices.octavo.dev", "")
    assert crd is not None
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return spec["engine"]["properties"].get(next_release.FIELD, {}).get("default")
