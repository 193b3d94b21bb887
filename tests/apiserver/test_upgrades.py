"""An operator of another release, with other images and defaults, replaces nothing that runs."""

import json
from pathlib import Path
from typing import Any

from support.cluster.bed import Bed, wait_until
from support.cluster.operators import operator, service, settled
from support.patience import PATIENCE_S

OWN = "deployments,statefulsets,controllerrevisions"


def test_an_upgrade_and_a_rollback_of_the_operator_leave_every_template_as_it_is(
    bed: Bed, space: str, tmp_path: Path
) -> None:
    releases = [("--worker-image", f"worker:{tag}", "--router-image", f"router:{tag}") for tag in ("0.1", "0.2")]
    with operator(bed.kubeconfig, tmp_path, space, *releases[0]):
        bed.apply(service(), namespace=space)
        settled(bed, space)
    first = _templates(bed, space)
    assert first["StatefulSet chat-0"][0] == "worker:0.1" and first["Deployment chat-router"][0] == "router:0.1"
    for replicas, release in enumerate((releases[1], releases[0]), start=2):
        with operator(bed.kubeconfig, tmp_path, space, *release):
            bed.apply(service(replicas=replicas), namespace=space)
            wait_until(lambda: bed.get("statefulset", "chat-1", space), PATIENCE_S, "another group")
            settled(bed, space)
            found = _templates(bed, space)
            assert {name: found[name] for name in first} == first
            assert found["StatefulSet chat-1"] == first["StatefulSet chat-0"], "also of the revision's own template"
    with operator(bed.kubeconfig, tmp_path, space, *releases[1]):
        bed.apply(service(replicas=0), namespace=space)
        wait_until(lambda: not bed.objects("statefulsets", space), PATIENCE_S, "no groups")
        bed.apply(service(replicas=1), namespace=space)
        wait_until(lambda: bed.objects("statefulsets", space), PATIENCE_S, "a group")
        assert _templates(bed, space)["StatefulSet chat-0"] == first["StatefulSet chat-0"], "0 and back"
        bed.apply(service(replicas=1, restartAt="now"), namespace=space)
        wait_until(lambda: "worker:0.2" in json.dumps(bed.objects(OWN, space)), PATIENCE_S, "its present images")


def _templates(bed: Bed, space: str) -> dict[str, tuple[str, int]]:
    """Image and metadata.generation, which counts changes of the spec, by kind and name."""
    found: dict[str, tuple[str, int]] = {}
    for item in bed.objects("deployments,statefulsets", space):
        pod: dict[str, Any] = item["spec"]["template"]["spec"]  # Any: JSON
        found[f"{item['kind']} {item['metadata']['name']}"] = (
            pod["containers"][0]["image"],
            item["metadata"]["generation"],
        )
    return found
