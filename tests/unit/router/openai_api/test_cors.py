"""Pages of other origins: none may read anything unless theirs was allowed."""

import pytest

from octavo.router.openai_api.cors import Cors
from octavo.shared.setting_kinds import is_origin

PAGE = "https://app.example.com"
ASKS = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}


@pytest.mark.parametrize(
    "origin", ["*", PAGE, "http://localhost:3000", "http://[::1]:80", "app://x", "chrome-extension://a", "a+1.x-y://h"]
)
def test_origins_are_scheme_host_and_port(origin: str) -> None:
    assert is_origin(origin)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "example.com", PAGE + "/", PAGE + "/x", PAGE + " ", PAGE + "\n", "https://a b", "HTTPS://X", "**",
        "https://A.example", "https://", "https://a:123456", "http://[::1", "://a",
    ],
)  # fmt: skip
def test_what_browsers_never_send_is_no_origin(text: str) -> None:
    assert not is_origin(text)


def test_without_allowed_origins_nothing_is_added_or_answered() -> None:
    assert Cors().headers({"Origin": PAGE}) == {}
    assert Cors().preflight("OPTIONS", ASKS) is None


def test_an_allowed_origin_is_named_and_another_is_not() -> None:
    cors = Cors(frozenset({PAGE}))
    assert cors.headers({"Origin": PAGE})["Access-Control-Allow-Origin"] == PAGE
    for other in ({}, {"Origin": "https://evil.example"}, {"Origin": PAGE.upper()}, {"Origin": "null"}):
        assert cors.headers(other) == {"Vary": "Origin"}
        assert cors.preflight("OPTIONS", ASKS | {"Origin": "https://evil.example"} | other) is None or other == {}


def test_only_a_preflight_is_answered_as_one() -> None:
    cors = Cors(frozenset({PAGE}))
    assert cors.preflight("OPTIONS", {"Origin": PAGE}) is None
    assert cors.preflight("POST", ASKS) is None
    answer = cors.preflight("OPTIONS", ASKS)
    assert answer is not None and "POST" in answer["Access-Control-Allow-Methods"]


def test_the_headers_that_a_client_requests_are_allowed_unless_they_are_none() -> None:
    cors = Cors(frozenset({"*"}))
    requested = "authorization,content-type,x-stainless-os"
    answer = cors.preflight("OPTIONS", ASKS | {"Access-Control-Request-Headers": requested})
    assert answer is not None and answer["Access-Control-Allow-Headers"] == requested
    for bad in ("x\r\nSet-Cookie: a", "a" * 5000, "é"):
        answer = cors.preflight("OPTIONS", ASKS | {"Access-Control-Request-Headers": bad})
        assert answer is not None and answer["Access-Control-Allow-Headers"] == "Authorization, Content-Type"
