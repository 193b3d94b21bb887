"""What the resource takes for a router is what a router takes: neither may import the other."""

import argparse
import re

import pytest

from octavo.operator.api import router_schema
from octavo.router.parsers.parser_flags import REASONING_FLAGS, TOOL_FLAGS
from octavo.router.process.config import origin


def test_the_resource_names_the_parsers_that_a_router_has() -> None:
    assert tuple(router_schema.TOOL_PARSERS) == TOOL_FLAGS
    assert tuple(router_schema.REASONING_PARSERS) == REASONING_FLAGS


@pytest.mark.parametrize(
    "text",
    [
        "*", "https://a.example", "http://localhost:5173", "http://[::1]:80", "chrome-extension://a", "a+1.x-y://h",
        "https://a.example/", "https://A.example", "a.example", "https://", "https://a:123456", "http://[::1", "**",
        "null", "", "https://a.example ", "https://a b", "://a",
    ],
)  # fmt: skip
def test_the_resource_takes_the_origins_that_a_router_takes(text: str) -> None:
    try:
        taken = origin(text) == text
    except argparse.ArgumentTypeError:
        taken = False
    assert (re.search(router_schema.ORIGIN, text) is not None) == taken
