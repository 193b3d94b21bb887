"""What must hold before any test module is imported."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# OpenMP threads that spin at barriers starve each other on a busy machine: a test of a second then takes a minute.
# libgomp reads this when torch is loaded; child processes inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A busy machine makes examples slow, not wrong; pytest's own timeout ends one that hangs.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

HERE = Path(__file__).parent
# Suites whose tests share something costly, longest first: each stays in one process. The others go by module.
SUITES = ("cluster", "apiserver", "exactness")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For runs in several processes: who stays together, and the long ones first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item.path)))
    items.sort(key=lambda item: SUITES.index(_suite(item.path)) if _suite(item.path) in SUITES else len(SUITES))


def _suite(path: Path) -> str:
    return path.relative_to(HERE).parts[0]


def _group(path: Path) -> str:
    return _suite(path) if _suite(path) in SUITES else str(path.relative_to(HERE))
