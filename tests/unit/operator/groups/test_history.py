"""What is kept of a revision can be read again, and no more is kept than is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.operator.groups.history import (
    Kept,
    Progress,
    Record,
    Rollback,
    encode,
    kept_routers,
    kept_workers,
    last_good,
    next_number,
    parse,
    to_prune,
)

TEMPLATE = {"metadata": {}, "spec": {"containers": []}}
TIMES = st.integers(0, 2_000_000_000).map(float)
RECORDS = st.builds(
    Record,
    served=st.booleans(),
    completed=st.booleans(),
    progress=st.none() | st.builds(Progress, st.integers(0, 999), st.none() | TIMES),
    rollback=st.none() | st.builds(Rollback, st.text(max_size=10), TIMES, st.text(), st.text()),
)


def kept(revision: str, number: int, *, usable: bool = True, **record: bool) -> Kept:
    return Kept(revision, number, TEMPLATE if usable else None, {}, Record(**record))


def by_revision(*items: Kept) -> dict[str, Kept]:
    return {item.revision: item for item in items}


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert parse(encode(record)) == record


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"served": "yes", "completed": 1, "progress": 3, "rollback": {"to": "a"}}']
)
def test_what_cannot_be_read_of_a_record_is_left_out(text: str) -> None:
    assert parse(text) == Record()
    progress = '{"served": true, "progress": {"serving": 1, "since": "soon"}}'
    assert parse(progress) == Record(served=True)


def item(name: str, component: str, revision: str, data: object) -> dict[str, object]:
    labels = {"octavo.dev/component": component, "octavo.dev/revision": revision}
    return {"metadata": {"name": name, "labels": labels}, "revision": 3, "data": data}


def test_workers_and_routers_are_kept_apart_and_another_name_is_not_ours() -> None:
    data = {"spec": {"template": TEMPLATE}}
    found = [
        item("chat-a", "worker", "a", data),
        item("chat-router-b", "router", "b", data),
        item("chat-c", "worker", "d", data),
    ]
    assert list(kept_workers("chat", found)) == ["a"] and list(kept_routers("chat", found)) == ["b"]
    assert kept_workers("chat", found)["a"].number == 3


@pytest.mark.parametrize("data", [None, "{", {}, {"spec": 1}, {"spec": {"template": {"metadata": {}}}}])
def test_a_template_that_cannot_be_used_is_none_and_is_pruned(data: object) -> None:
    found = kept_workers("chat", [item("chat-a", "worker", "a", data)])
    assert found["a"].template is None
    assert to_prune(found, frozenset({"a"}), 5) == (found["a"],) and last_good(found.values()) is None


def test_the_oldest_idle_revisions_go_first_and_of_these_what_never_served() -> None:
    found = by_revision(
        kept("full", 1, served=True, completed=True),
        kept("once", 2, served=True),
        kept("bad", 3),
        kept("worse", 4),
        kept("used", 5),
    )
    order = [[gone.revision for gone in to_prune(found, frozenset({"used"}), limit)] for limit in (4, 3, 1, 0)]
    assert order == [[], ["bad"], ["once", "worse", "bad"], ["full", "once", "worse", "bad"]]


def test_the_last_good_revision_is_the_newest_that_completed_else_the_newest_that_served() -> None:
    full, once, never = kept("full", 1, served=True, completed=True), kept("once", 2, served=True), kept("never", 3)
    assert last_good([once, never, full]) == "full"
    assert last_good([once, never]) == "once" and last_good([never]) is None


def test_the_target_has_the_highest_number() -> None:
    found = by_revision(kept("a", 1), kept("b", 2))
    assert (next_number(found, "b"), next_number(found, "a"), next_number(found, "c")) == (2, 3, 3)
    assert next_number({}, "a") == 1
