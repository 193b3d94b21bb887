"""Unknown fields are reported; known fields that are not served are refused by name, always."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api import known_fields as known
from octavo.router.openai_api.known_fields import ELSEWHERE, OF_ONE_ENDPOINT, unknown_fields
from octavo.router.openai_api.openai import HARMLESS, KNOWN, NEUTRAL, Kind, parse
from octavo.router.openai_api.responses import response_request
from octavo.router.openai_api.responses.response_request import parse_response
from octavo.router.openai_api.unknown_field_warnings import STRICT, WARNING, check_strict, warning

TEXT = {"prompt": "x"}
CHAT = {"messages": [{"role": "user", "content": "x"}]}
INPUT = {"input": "x"}


def test_an_unknown_field_is_remembered_and_changes_nothing() -> None:
    for kind, good in (("completion", TEXT), ("chat", CHAT)):
        asked = parse(kind, good | {"nonsense": 1, "more": {"a": [1]}})  # type: ignore[arg-type]
        assert asked.unknown == ("nonsense", "more")
    assert parse_response(INPUT | {"nonsense": 1}).unknown == ("nonsense",)


@pytest.mark.parametrize("name", sorted(ELSEWHERE.keys() - KNOWN["chat"]))
def test_what_other_servers_know_is_refused_by_name_and_never_ignored(name: str) -> None:
    for read in (lambda b: parse("completion", TEXT | b), lambda b: parse("chat", CHAT | b)):
        with pytest.raises(RequestError) as refused:
            read({name: {"some": "thing"}})
        assert refused.value.field == name
        for value in ELSEWHERE[name]:
            read({name: value})


GOOD: dict[Kind, dict[str, object]] = {"completion": TEXT, "chat": CHAT}
MISPLACED = [(kind, name) for kind in GOOD for name in sorted(OF_ONE_ENDPOINT - KNOWN[kind])]


@pytest.mark.parametrize(("kind", "name"), MISPLACED)
def test_a_field_of_another_endpoint_is_refused_by_name(kind: Kind, name: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse(kind, GOOD[kind] | {name: "x"})
    assert refused.value.field == name


def test_each_field_of_one_endpoint_is_missing_at_another() -> None:
    assert {name for _, name in MISPLACED} == set(OF_ONE_ENDPOINT)


def test_each_name_is_in_one_table_only() -> None:
    served = KNOWN["completion"] | KNOWN["chat"]
    assert not served & HARMLESS
    assert not (served | HARMLESS | NEUTRAL.keys()) & ELSEWHERE.keys()
    assert not response_request.SERVED & response_request.REFUSED.keys()


def test_null_means_absent_for_an_unknown_field_too() -> None:
    assert parse("completion", TEXT | {"nonsense": None}).unknown == ()


@given(st.dictionaries(st.text(), st.integers(), max_size=40))
def test_the_header_is_bounded_and_holds_nothing_that_could_end_it(body: dict[str, int]) -> None:
    try:
        names = unknown_fields(body, frozenset(), frozenset(), {})
    except RequestError:
        return
    headers = warning(names)
    assert bool(headers) == bool(body)
    value = headers.get(WARNING, "")
    assert value.isascii() and (not value or value.isprintable())
    assert len(value) <= 64 + known.MAX_UNKNOWN * (known.MAX_NAME + 4)
    assert value.count('"') == 2 * len(names)


def test_strictness_is_the_routers_or_the_requests() -> None:
    check_strict((), True, {STRICT: "true"})
    check_strict(("foo",), False, {})
    check_strict(("foo",), False, {STRICT: "false"})
    for router, headers in ((True, {}), (True, {STRICT: "false"}), (False, {STRICT: "TRUE"})):
        with pytest.raises(RequestError) as refused:
            check_strict(("foo",), router, headers)
        assert (refused.value.status, refused.value.field) == (400, "foo")
    with pytest.raises(RequestError):
        check_strict((), False, {STRICT: "maybe"})
