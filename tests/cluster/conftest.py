"""Tests on a real cluster of two nodes that hold our images; see bed/README.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bed import Cluster, cluster_fixture  # noqa: F401
from support.checkpoints import successor_checkpoint
from support.deployed import Release, Service, forget, readable, release

HERE = Path(__file__).parent
LIMIT_S = 300  # of a test; the fixtures, which may have to build the images, limit each of their commands
LONG = {"num_key_value_heads": 1}  # 1 KiB of KV a token
CONTEXT = 65_536
LETTERS: dict[str, Any] = {"replicas": 1, "engine": {"kvCacheMemory": "128Mi"}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S, func_only=True))


@pytest.fixture(scope="session")
def octavo(cluster: Cluster) -> Iterator[Release]:
    """The chart, installed once. Its volume holds the model `letters`, which says the alphabet for ever."""
    forget(cluster)
    models = cluster.state / "models"
    folder = successor_checkpoint(models / "letters", eos=None, context_length=CONTEXT, config=LONG)
    readable(folder)
    with release(cluster, "octavo", models) as here:
        yield here


@pytest.fixture
def letters(octavo: Release) -> Service:
    """A service of one group that serves; tests share it, and each finds it as new."""
    service = octavo.service("letters", **LETTERS)
    service.settled()
    return service
