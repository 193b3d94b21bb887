"""Which event loop a unit's tests run on: the one that runs it in production."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

ROOT = Path(__file__).parent
ON_UVLOOP = {"router", "worker"}  # a router's processes and a leader's serve; all others use asyncio's own

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    if item.path.relative_to(ROOT).parts[0] in ON_UVLOOP:
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
