"""A real API server without nodes, our CRD on it, and a namespace for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.bed import Bed, BedError, api_server_fixture, wait_until  # noqa: F401

CRD = Path(__file__).parents[2] / "charts/octavo/files/crds/inferenceservices.yaml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.apiserver)
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)  # else as they were


@pytest.fixture(scope="session")
def bed(api_server: Bed) -> Bed:
    """The API server with the chart's CRD."""
    api_server.apply(CRD)
    api_server.wait_for_crd("inferenceservices.octavo.dev")
    document = "/openapi/v3/apis/octavo.dev/v1alpha1"
    wait_until(lambda: "InferenceService" in _raw(api_server, document), 30, f"{document} describes the CRD")
    return api_server


@pytest.fixture
def space(bed: Bed) -> Iterator[str]:
    with bed.namespace("api") as name:
        yield name


def _raw(bed: Bed, path: str) -> str:
    try:
        return bed.kubectl("get", "--raw", path)
    except BedError:
        return ""
