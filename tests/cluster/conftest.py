"""Services on a real cluster, on nodes that stay; see bed/README.md."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.bed import SERVICES, Cluster, cluster, require
from support.cluster.deployed import Release, Service, installed

HERE = Path(__file__).parent
LIMIT_S = 300  # of a test; the fixtures, which may have to build the images, limit each of their commands


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S, func_only=True))


@pytest.fixture(scope="session", name="cluster")
def cluster_fixture() -> Iterator[Cluster]:
    require("cluster")
    with cluster(SERVICES) as bed:
        yield bed


@pytest.fixture(scope="session")
def octavo(cluster: Cluster) -> Iterator[Release]:
    with installed(cluster) as here:
        yield here


@pytest.fixture
def letters(octavo: Release) -> Service:
    """A service of one group that serves; tests share it."""
    return octavo.letters()
