"""A setting's value survives the way from the resource over the flags into the router, whatever it is."""

import argparse
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster.services import service

from octavo.operator.api import settings_page
from octavo.operator.groups.revision import router_revision
from octavo.router.process.config import argument_type, parse_arguments
from octavo.shared.router_settings import SETTINGS, RouterSettings, Setting, from_spec, to_flags
from octavo.shared.setting_kinds import Choice, Duration, Integer, Kind, Origins, Switch

GROUP = "--group=unix:/x"
OTHERS: dict[type[Kind], Any] = {
    Integer: st.integers(1, 64),
    Duration: st.one_of(st.integers(0, 999_999).map(lambda ms: ms / 1000), st.integers(0, 86_400).map(float)),
    Switch: st.booleans(),
    Origins: st.lists(st.sampled_from(["*", "https://a.example", "http://[::1]:81"]), max_size=3).map(tuple),
}


def values(setting: Setting) -> Any:
    kind = setting.kind
    return st.sampled_from(kind.names) if isinstance(kind, Choice) else OTHERS[type(kind)]


ANY = st.fixed_dictionaries({name: values(setting) for name, setting in SETTINGS.items()}).map(
    lambda chosen: RouterSettings(**chosen)
)


def fields(settings: RouterSettings) -> dict[str, Any]:
    """spec.router of the settings."""
    router: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        *records, last = setting.path.split(".")
        record = router
        for step in records:
            record = record.setdefault(step, {})
        record[last] = setting.kind.to_field(getattr(settings, name))
    return router


@given(ANY)
def test_a_router_gets_what_the_resource_says(settings: RouterSettings) -> None:
    read = service(router=fields(settings)).spec.router.settings
    assert read == from_spec(fields(settings))
    for reached in (read, parse_arguments([GROUP, *to_flags(read)]).settings):
        assert reached.queue_max_wait_s == pytest.approx(settings.queue_max_wait_s)
        assert replace(reached, queue_max_wait_s=settings.queue_max_wait_s) == settings


def test_defaults_are_the_same_for_the_resource_the_router_and_its_flags() -> None:
    assert service().spec.router.settings == parse_arguments([GROUP]).settings == RouterSettings()
    assert {name: setting.default for name, setting in SETTINGS.items()} == {
        name: getattr(RouterSettings(), name) for name in SETTINGS
    }


@given(ANY)
def test_routers_are_replaced_exactly_for_other_settings(settings: RouterSettings) -> None:
    changed = service(router=fields(settings))
    same = fields(changed.spec.router.settings) == fields(RouterSettings())
    assert (router_revision(changed) == router_revision(service())) == same


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Integer(1, 64, flag_high=256), "257", "'257' is not a whole number in 1..256"),
        (Integer(1, 9), "-1", "'-1' is not a whole number in 1..9"),
        (Duration(), "2m", "'2m' is not a number of seconds in 0..86400"),
        (Duration(), "86401", "'86401' is not a number of seconds in 0..86400"),
        (Origins(), "a.example", "'a.example' is not an origin such as https://example.com, nor *"),
    ],
)
def test_what_a_flag_cannot_have_is_refused_with_its_bounds(kind: Kind, text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        argument_type(kind.parse)(text)
    assert str(refused.value) == message


def test_a_page_without_the_marks_of_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="end"):
        settings_page.updated(f"text\n{settings_page.BEGIN}text\n")
    page = settings_page.updated(f"before\n{settings_page.BEGIN}{settings_page.END}after\n")
    assert page.startswith("before\n") and page.endswith("after\n") and page.count("`router.") == len(SETTINGS)
    assert settings_page.updated(page) == page
