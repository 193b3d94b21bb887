"""An operator that was rolled back keeps the pods that a newer one made of fields which it does not know."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
from support.cluster.services import resource
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.api import fields, v1alpha1
from octavo.operator.api.schema import service_schema
from octavo.operator.groups import revision
from octavo.operator.groups.options import Options
from octavo.operator.groups.unknown_fields import MOST_LEAVES, with_hashed_fields

Json = dict[str, Any]  # Any: JSON
NEWER, OLDER = Options(worker_image="new", router_image="r-new"), Options(worker_image="old", router_image="r-old")


def _speculation() -> Json:
    tokens = fields.integer("Tokens.", 0, 99, 4)
    draft = fields.text("Draft.", 64)
    return {"speculation": fields.record("Speculation.", {"tokens": tokens, "draft": draft}, default={})}


@contextmanager
def newer_release() -> Iterator[None]:
    """A release whose engine has `speculation`, routers a setting `shards` and a policy `newest`, and the rest a
    field `extra`."""
    schema = deepcopy(service_schema())
    spec = schema["properties"]["spec"]["properties"]
    spec["engine"]["properties"] |= _speculation()
    spec["router"]["properties"]["shards"] = fields.integer("Shards.", 1, 9, 1)
    spec["router"]["properties"]["policy"]["enum"] = [*spec["router"]["properties"]["policy"]["enum"], "newest"]
    spec["extra"] = fields.text("Extra.", 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v1alpha1, "service_schema", lambda: schema)
        patch.setattr(revision, "service_schema", lambda: schema)
        patch.setattr(revision, "WORKER_FIELDS", (*revision.WORKER_FIELDS, "extra"))
        yield


def defaulted(spec: Json) -> Json:
    """As the API server stores it with the newer CRD."""
    engine = {"speculation": {"tokens": 4}, **spec.get("engine", {})}
    return {**spec, "engine": engine, "router": {"shards": 1, **spec.get("router", {})}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"engine": {"speculation": {"tokens": 4, "draft": "small"}}},
        {"engine": {"speculation": {"tokens": 7, "draft": "small"}, "maxRequests": 8}, "extra": "on"},
        {"router": {"shards": 3}},
        {"router": {"policy": "newest", "shards": 2}, "extra": "on"},
    ],
)
def test_pods_of_a_newer_operator_stay_when_it_is_rolled_back(spec: Json) -> None:
    spec = defaulted(spec)
    with newer_release():
        tiny = TinyCluster(resource(**spec), NEWER)
        tiny.settle()
    pods, routers = set(tiny.pods), set(tiny.routers)
    tiny.options = OLDER
    tiny.settle()
    assert (set(tiny.pods), set(tiny.routers)) == (pods, routers)
    assert tiny.condition("SpecSupported")["status"] == "False"
    tiny.edit(**spec, replicas=2)  # another pod of the same template
    tiny.settle()
    assert tiny.images() == ["new", "new"] and tiny.serving() == 2
    tiny.delete_pod("chat-0-0")
    tiny.settle()
    assert tiny.serving() == 2 and set(tiny.routers) == routers
    pods = set(tiny.pods)
    tiny.options = NEWER
    with newer_release():
        tiny.settle()
    assert (set(tiny.pods), set(tiny.routers)) == (pods, routers)
    assert tiny.condition("SpecSupported")["status"] == "True"


def test_a_change_of_a_known_field_takes_effect_beside_unknown_ones() -> None:
    spec = defaulted({"engine": {"speculation": {"tokens": 7}}})
    with newer_release():
        tiny = TinyCluster(resource(**spec), NEWER)
        tiny.settle()
    tiny.options = OLDER
    tiny.edit(**spec, image="mine")
    tiny.settle()
    assert tiny.images() == ["mine"] and tiny.serving() == 1


def test_many_unknown_fields_are_tried_together_only() -> None:
    stored = v1alpha1.parse_stored(resource(engine={f"new{number}": number for number in range(MOST_LEAVES + 4)}))
    tried: list[str] = []

    class Kept:
        def __contains__(self, revision: object) -> bool:
            tried.append(str(revision))
            return False

    assert with_hashed_fields(stored, Kept(), Kept()) == stored
    assert len(tried) == 1
