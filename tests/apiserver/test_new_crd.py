"""A CRD of a newer release stops no operator: what it does not know is named, and everything else goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import condition, operator, service, settled
from support.patience import PATIENCE_S

CRD = Path(__file__).parents[2] / "charts/octavo/files/crds/inferenceservices.yaml"
NEW = "speculation"


@pytest.fixture
def new_crd(bed: Bed) -> Iterator[None]:
    """The CRD with spec.engine.speculation, which has a default, and another routing policy; the real one is put
    back."""
    crd = yaml.safe_load(CRD.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["engine"]["properties"][NEW] = {"type": "integer", "default": 4}
    spec["router"]["properties"]["policy"]["enum"].append("newest")
    bed.apply(yaml.safe_dump(crd))
    wait_until(lambda: _describes(bed), PATIENCE_S, "the API server describes the new CRD")
    yield
    bed.apply(CRD)
    wait_until(lambda: not _describes(bed), PATIENCE_S, "the API server describes the CRD again")


@pytest.mark.usefixtures("new_crd")
def test_new_fields_are_named_and_healing_changes_and_certificates_go_on(bed: Bed, space: str, tmp_path: Path) -> None:
    with operator(bed.kubeconfig, tmp_path, space):
        bed.apply(service(engine={NEW: 7}, router={"policy": "newest"}), namespace=space)
        named = wait_until(lambda: _unsupported(bed, space), PATIENCE_S, "the condition")
        assert f"spec.engine.{NEW}, spec.router.policy: 'newest'" in named["message"]
        settled(bed, space)
        assert condition(bed, space, "Reconciled")["status"] == "True"
        for kind, name in (("service", "chat-leaders"), ("secret", "chat-worker-tls"), ("deployment", "chat-router")):
            gone = bed.get(kind, name, space)
            assert gone is not None, f"{kind} {name} was made"
            bed.client.delete(kind, name, space)
            wait_until(
                lambda kind=kind, name=name, uid=gone["metadata"]["uid"]: _made_again(bed, space, kind, name, uid),  # type: ignore[misc]
                PATIENCE_S,
                f"{kind} {name} is made again",
            )
        bed.apply(service(engine={NEW: 7}, router={"policy": "newest"}, replicas=2), namespace=space)
        wait_until(lambda: bed.get("statefulset", "chat-1", space), PATIENCE_S, "a second group")


def _unsupported(bed: Bed, space: str) -> dict[str, str]:
    found = condition(bed, space, "SpecSupported")
    return found if found.get("reason") == "UnknownFields" else {}


def _made_again(bed: Bed, space: str, kind: str, name: str, uid: str) -> bool:
    found = bed.get(kind, name, space)
    return found is not None and found["metadata"]["uid"] != uid


def _describes(bed: Bed) -> bool:
    return f'"{NEW}"' in bed.kubectl("get", "--raw", "/openapi/v3/apis/octavo.dev/v1alpha1")
