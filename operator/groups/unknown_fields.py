"""Revisions of a spec that has fields which this release does not know, after an operator was rolled back.

The newer operator hashed these fields, as far as they differ from their defaults, which this one does not know. So a
kept revision is that of the spec if its hash is that of the known fields and some of the unknown ones: then its pods
stay. Of a spec that no kept revision has, the unknown fields are left out. So it is where one of them is an amount
such as 512Mi, which is hashed as a number.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from octavo.operator.api.v1alpha1 import InferenceService
from octavo.operator.api.validate import Steps
from octavo.operator.groups.revision import router_revision, worker_revision

MOST_LEAVES = 8  # of more, all or none are tried: 2^8 hashes take some 20 ms

Json = Any  # Any: JSON of any shape
Leaf = tuple[Steps, Json]


def with_hashed_fields(service: InferenceService, workers: Container[str], routers: Container[str]) -> InferenceService:
    """The service whose `raw` has the unknown fields that its kept revisions, if any, were hashed with."""
    found = [(one.steps[1:], one.value) for one in service.unknown if one.steps[0] == "spec"]
    leaves = [leaf for steps, value in found for leaf in _leaves(steps, value)]
    of_routers = [leaf for leaf in leaves if leaf[0][0] == "router"]
    of_workers = [leaf for leaf in leaves if leaf[0][0] != "router"]
    service = _matching(service, of_workers, worker_revision, workers)
    return _matching(service, of_routers, router_revision, routers)


def _matching(
    service: InferenceService, leaves: list[Leaf], hashed: Callable[[InferenceService], str], kept: Container[str]
) -> InferenceService:
    """With as many of the leaves as possible, so that a kept revision results; without one, as it is."""
    for chosen in _choices(leaves):
        raw: Json = service.raw
        for steps, value in chosen:
            raw = _put(raw, steps, value)
        tried = replace(service, raw=raw)
        if hashed(tried) in kept:
            return tried
    return service


def _choices(leaves: list[Leaf]) -> Iterator[tuple[Leaf, ...]]:
    """The largest first, without the empty one."""
    sizes = range(len(leaves), 0, -1) if len(leaves) <= MOST_LEAVES else (len(leaves),)
    for size in sizes:
        yield from combinations(leaves, size)


def _leaves(steps: Steps, value: Json) -> Iterator[Leaf]:
    """The values in a value that are no objects; null is an absent field."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves((*steps, key), item)
    elif value is not None:
        yield steps, value


def _put(into: Json, steps: Steps, value: Json) -> Json:
    """A copy of `into` that has the value there."""
    if not steps:
        return value
    first, rest = steps[0], steps[1:]
    if isinstance(first, int):
        return [_put(item, rest, value) if index == first else item for index, item in enumerate(into)]
    return {**into, first: _put(into.get(first, {}), rest, value)}
