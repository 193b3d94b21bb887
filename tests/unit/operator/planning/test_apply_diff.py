"""A write is skipped exactly when it would change nothing. The live object is one that an API server (1.34) sent."""

import copy
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from octavo.operator.api.quantity import quantity
from octavo.operator.planning import apply_diff as semantic

Json = dict[str, Any]  # Any: Kubernetes JSON
LIVE: Json = json.loads((Path(__file__).parents[1] / "live_statefulset.json").read_text())

# Some are names of lists that are merged by keys, and of the keys: the items need not be objects.
names = st.text(max_size=5) | st.sampled_from(["ports", "port", "protocol", "env", "name", "volumes", "requests"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


def owned(live: Json) -> Json:
    """The object that was applied to make `live`: the fields that the manager owns of it."""
    entry = next(item for item in live["metadata"]["managedFields"] if item["manager"] == "octavo")
    desired: Json = _pick(live, entry["fieldsV1"])
    desired |= {"apiVersion": live["apiVersion"], "kind": live["kind"]}
    desired["metadata"]["name"] = live["metadata"]["name"]
    return desired


def _pick(value: Any, fields: Json) -> Any:  # Any: JSON
    inner = {name: found for name, found in fields.items() if name != "."}
    if not inner:
        return copy.deepcopy(value)
    if isinstance(value, dict):
        return {name[2:]: _pick(value[name[2:]], found) for name, found in inner.items()}
    picked = []
    for name, found in inner.items():
        keys = json.loads(name[2:])
        item = next(item for item in value if all(item.get(key) == keys[key] for key in keys))
        picked.append({**_pick(item, found), **keys})
    return picked


def test_what_was_applied_needs_no_second_write() -> None:
    assert semantic.unchanged(LIVE, owned(LIVE), "octavo")


@given(json_values)
@example({"ports": [None]})
@example({"ports": [{"port": []}]})
@example({"env": [{"value": 1}, {"value": 2}]})
def test_every_value_holds_itself(value: Any) -> None:
    assert semantic.holds(value, copy.deepcopy(value))


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=3), st.text(min_size=6), json_values)
def test_fields_of_others_are_ignored_and_missing_ones_are_not(desired: Json, key: str, value: Any) -> None:
    assert semantic.holds({**desired, key: value}, desired)
    assert semantic.holds(desired, {**desired, key: "x"}) is False


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "replicas"), 7),
        (("spec", "template", "spec", "containers", 0, "image"), "other"),
        (("spec", "template", "spec", "containers", 0, "args", 0), "--model=other"),
        (("spec", "template", "spec", "tolerations", 0, "tolerationSeconds"), 300),
        (("metadata", "labels", "octavo.dev/revision"), "other"),
        (("spec", "template", "spec", "containers", 0, "resources", "requests", "cpu"), "251m"),
    ],
)
def test_a_changed_field_is_noticed(path: tuple[str | int, ...], value: object) -> None:
    live = copy.deepcopy(LIVE)
    desired = owned(LIVE)
    _set(live, path, value)
    assert not semantic.unchanged(live, desired, "octavo")


@pytest.mark.parametrize(
    ("live", "desired"), [("1", "1000m"), ("1Gi", "1024Mi"), (1, "1"), ("1e3", "1k"), ("250m", "0.25")]
)
def test_other_spellings_of_a_quantity_cause_no_write(live: object, desired: object) -> None:
    assert semantic.holds({"requests": {"cpu": live}}, {"requests": {"cpu": desired}})
    assert not semantic.holds({"env": {"cpu": live}}, {"env": {"cpu": desired}}), "only quantities are numbers"


def test_a_field_that_is_no_longer_desired_is_found() -> None:
    desired = owned(LIVE)
    del desired["metadata"]["labels"]["octavo.dev/group"]
    assert semantic.holds(LIVE, desired)
    assert list(semantic.fields_to_remove(LIVE, desired, "octavo")) == ["metadata.labels.octavo.dev/group"]
    desired = owned(LIVE)
    removed = desired["spec"]["template"]["spec"]["containers"][0]["env"].pop()
    assert any(removed["name"] in path for path in semantic.fields_to_remove(LIVE, desired, "octavo"))
    assert not list(semantic.fields_to_remove(LIVE, desired, "another-manager"))


def test_what_others_add_to_a_keyed_list_is_theirs_but_not_to_a_list_that_is_one_value() -> None:
    live, desired = copy.deepcopy(LIVE), owned(LIVE)
    live["spec"]["template"]["spec"]["containers"].append({"name": "sidecar", "image": "x"})
    assert semantic.holds(live, desired)
    live["spec"]["template"]["spec"]["containers"][0]["args"].append("--more")
    assert not semantic.holds(live, desired)
    rule = {"ingress": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}
    opened = {"ingress": [{"ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}]}]}
    assert not semantic.holds(opened, rule), "a port that another owner opened must be closed"


def test_a_keyed_list_whose_items_have_no_keys_of_their_own_is_one_value() -> None:
    """The API server has none; a live object of another writer, or of a later API, may."""
    both = [{"value": 1}, {"value": 2}]
    assert semantic.holds({"env": both}, {"env": both})
    assert not semantic.holds({"env": both[1:]}, {"env": both}) and not semantic.holds({"env": both}, {"env": both[1:]})
    assert not semantic.holds({"env": ["a"]}, {"env": [{"name": "a"}]})


def test_empty_desired_fields_match_what_the_server_dropped() -> None:
    assert semantic.holds({}, {"a": {}, "b": [], "c": None, "d": {"e": {}}})
    assert not semantic.holds({}, {"a": {"b": 1}})


@given(st.integers(0, 10**12), st.sampled_from(["", "m", "k", "Mi", "Gi", "T"]))
def test_quantities_are_exact(number: int, suffix: str) -> None:
    factor = {"": 1, "m": Fraction(1, 1000), "k": 1000, "Mi": 2**20, "Gi": 2**30, "T": 10**12}[suffix]
    assert quantity(f"{number}{suffix}") == number * factor


@pytest.mark.parametrize("text", ["", "m", "1x", "-1", "1 Gi", "1gi", None, True, [], "Gi1"])
def test_what_is_no_quantity_is_none(text: object) -> None:
    assert quantity(text) is None


def _set(item: Any, path: tuple[str | int, ...], value: object) -> None:
    for step in path[:-1]:
        item = item[step]
    item[path[-1]] = value
