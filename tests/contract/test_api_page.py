"""docs/api.md names every route, error code and header of ours."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.router.api_document.routes import ROUTES
from octavo.router.frontend.body_buffer import MAX_BODY_BYTES
from octavo.router.frontend.deadlines import TIMEOUT
from octavo.router.frontend.http.responses import REQUEST_ID, SHOULD_RETRY
from octavo.router.openai_api.prompts import MAX_IDS
from octavo.router.openai_api.unknown_field_warnings import STRICT, WARNING

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/api.md").read_text()


def codes() -> Iterator[str]:
    """Literals in the place of `code` in a call of RequestError, invalid or failed."""
    for path in (ROOT / "router").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = {"RequestError": 2, "invalid": 2}.get(node.func.id)
                if place is not None and len(node.args) > place:
                    code = node.args[place]
                    if isinstance(code, ast.Constant) and isinstance(code.value, str):
                        yield code.value


def test_every_error_code_stands_in_the_table() -> None:
    found = set(codes())
    assert len(found) > 20
    assert {code for code in found if f"`{code}`" not in PAGE} == set()


@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES}))
def test_every_route_stands_on_the_page(path: str) -> None:
    name = path.replace("/v1/models/{model}", "/v1/models/{id}")
    assert re.search(rf"`(GET |POST )?{re.escape(name)}`", PAGE)


@pytest.mark.parametrize("header", [TIMEOUT, STRICT, WARNING, REQUEST_ID, SHOULD_RETRY])
def test_every_header_stands_on_the_page(header: str) -> None:
    assert f"`{header}" in PAGE


def test_the_limits_are_the_codes() -> None:
    assert f"{MAX_BODY_BYTES >> 20} MiB" in PAGE and f"{MAX_IDS:,}" in PAGE
