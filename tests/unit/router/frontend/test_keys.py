"""API keys: which requests pass."""

import pytest

from octavo.router.frontend.keys import Keys
from octavo.router.jobs.generation import RequestError


@pytest.mark.parametrize("header", ["Bearer alpha", "bearer beta", "Bearer  alpha", "BEARER beta "])
def test_a_known_key_is_let_in(header: str) -> None:
    Keys(["alpha", "beta"]).check(header)


REFUSED = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "alpha",
    "Basic alpha",
    "Bearer alph",
    "Bearer alphaa",
    "Bearer ALPHA",
    "Bearer alpha,beta",
    "Bearer alpha beta",
    "Bearer \udcff",
    "Bearer " + "\0" * 32,
]


@pytest.mark.parametrize("header", REFUSED)
def test_all_else_is_refused_with_401_that_does_not_repeat_it(header: str | None) -> None:
    with pytest.raises(RequestError) as refused:
        Keys(["alpha", "beta"]).check(header)
    assert (refused.value.status, refused.value.code) == (401, "invalid_api_key")
    assert "alph" not in refused.value.message


def test_no_key_stays_in_memory_as_it_was_written() -> None:
    held = Keys(["alpha-secret"])
    assert "alpha-secret" not in repr(vars(held)) and b"alpha-secret" not in b"".join(held._known)


@pytest.mark.parametrize("header", [None, "Bearer alpha", "Bearer "])
def test_without_any_valid_key_every_request_is_refused_as_one_to_send_again(header: str | None) -> None:
    with pytest.raises(RequestError) as refused:
        Keys([]).check(header)
    assert (refused.value.status, refused.value.code) == (503, "api_keys_unavailable")
    assert refused.value.retry_after is not None
