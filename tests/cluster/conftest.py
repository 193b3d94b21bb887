"""Tests on a real cluster of two nodes that hold our images; see bed/README.md."""

from pathlib import Path

import pytest
from support.bed import cluster_fixture  # noqa: F401

HERE = Path(__file__).parent
LIMIT_S = 1800  # the first test may have to build the images


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S))
