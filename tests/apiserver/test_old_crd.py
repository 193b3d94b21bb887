"""An operator on a CRD that an older chart left behind says so, and does not run on dropped fields."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.cluster.bed import Bed, wait_until
from support.cluster.operators import Operator

CRD = Path(__file__).parents[2] / "charts/octavo/files/crds/inferenceservices.yaml"


@pytest.fixture
def old_crd(bed: Bed) -> Iterator[None]:
    """The CRD without spec.paused; the real one is put back."""
    crd = yaml.safe_load(CRD.read_text())
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["paused"]
    bed.apply(yaml.safe_dump(crd))
    wait_until(lambda: not _describes(bed, "paused"), 30, "the API server describes the old CRD")
    yield
    bed.apply(CRD)
    wait_until(lambda: _describes(bed, "paused"), 30, "the API server describes the CRD again")


@pytest.mark.usefixtures("old_crd")
def test_an_old_crd_ends_the_operator_with_the_missing_field(bed: Bed, space: str, tmp_path: Path) -> None:
    one = Operator(bed.kubeconfig, tmp_path, "--namespace", space, "--lease-namespace", space)
    try:
        assert one.process.wait(60) == 1
    finally:
        one.kill()
    assert "spec.paused" in one.log.read_text() and "octavo crd | kubectl apply" in one.log.read_text()


def _describes(bed: Bed, field: str) -> bool:
    return f'"{field}"' in bed.kubectl("get", "--raw", "/openapi/v3/apis/octavo.dev/v1alpha1")
