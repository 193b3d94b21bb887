"""Difference between a live and a desired object: decides whether a server-side apply can be skipped.

`holds` is true if every desired field has its value, compared by meaning: `1000m` equals `1`. Defaults of the API
server and fields of other managers are ignored. `fields_to_remove` finds, from managedFields, the fields that an
earlier apply set and that are no longer desired: an apply must run to remove them. `different` finds the fields that do
not have their value. Desired objects contain no zero values, since the API server drops them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from octavo.operator.api.quantity import quantity
from octavo.operator.groups.snapshot import Object

Json = Any  # Any: JSON of any shape
# Names of fields, and for an item of a list the values of its keys.
Path = tuple[str | tuple[tuple[str, Any], ...], ...]  # Any: JSON

# Lists whose items server-side apply merges by keys; every other list is one value.
_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "ports": ("port", "containerPort", "protocol"),
    "imagePullSecrets": ("name",),
}
_QUANTITIES = frozenset({"requests", "limits"})


def unchanged(live: Object, desired: Object, manager: str) -> bool:
    """True if applying `desired` as `manager` would not change `live`."""
    live = _parsed(live)
    return holds(live, desired) and not any(fields_to_remove(live, desired, manager))


def _parsed(live: Object) -> Object:
    """The object without a cache's text: `data` of a ControllerRevision."""
    return {**live, "data": json.loads(live["data"])} if isinstance(live.get("data"), str) else live


def different(live: Object, desired: Object) -> Iterator[Path]:
    """Paths of the fields of `desired` that do not have their value in `live`."""
    return _different(_parsed(live), desired, "", ())


def _different(live: Json, desired: Json, field: str, path: Path) -> Iterator[Path]:
    if holds(live, desired, field):
        return
    keys = _KEYS.get(field)
    if isinstance(desired, dict) and isinstance(live, dict):
        for key, value in desired.items():
            yield from _different(live.get(key), value, "amount" if field in _QUANTITIES else key, (*path, key))
    elif keys and isinstance(desired, list | tuple) and isinstance(live, list) and _by_keys(desired, keys) is not None:
        of_live = _by_keys(live, keys) or {}
        for identity, item in (_by_keys(desired, keys) or {}).items():
            values = zip(keys, _identity(item, keys), strict=True)
            step = tuple((key, value) for key, value in values if value is not None)
            yield from _different(of_live.get(identity), item, "", (*path, step))
    else:
        yield path


def holds(live: Json, desired: Json, field: str = "", whole: bool = False) -> bool:
    """True if `live` has every field of `desired` with a value of the same meaning.

    field: the name of both in their parent. whole: they are inside a list that is one value.
    """
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            return live is None and _empty(desired)
        amounts = field in _QUANTITIES
        return all(holds(live.get(key), value, "amount" if amounts else key, whole) for key, value in desired.items())
    if isinstance(desired, list | tuple):
        return _holds_list(live, desired, field, whole)
    if field in ("amount", "sizeLimit"):
        return live == desired or (quantity(live) is not None and quantity(live) == quantity(desired))
    return type(live) is type(desired) and bool(live == desired)


def _empty(desired: Json) -> bool:
    """True for values that the API server may omit: null, [], {} and objects of such values."""
    return (
        desired is None
        or desired == []
        or (isinstance(desired, dict) and all(_empty(value) for value in desired.values()))
    )


def _holds_list(live: Json, desired: Sequence[Json], field: str, whole: bool) -> bool:
    if not isinstance(live, list | tuple):
        return live is None and not desired
    keys = None if whole else _KEYS.get(field)
    of_live, of_desired = (_by_keys(items, keys) for items in (live, desired))
    if of_live is not None and of_desired is not None:
        return all(holds(of_live.get(identity), item) for identity, item in of_desired.items())
    return len(live) == len(desired) and all(
        holds(old, new, whole=True) for old, new in zip(live, desired, strict=True)
    )


def _by_keys(items: Sequence[Json], keys: tuple[str, ...] | None) -> dict[str, Json] | None:
    """The items by the values of their keys; None if these do not tell them apart: then the list is one value."""
    if keys is None or not all(isinstance(item, dict) for item in items):
        return None
    found = {repr(_identity(item, keys)): item for item in items}
    return found if len(found) == len(items) else None


def _identity(item: Mapping[str, Json], keys: tuple[str, ...]) -> tuple[Json, ...]:
    return tuple(item.get(key, "TCP" if key == "protocol" else None) for key in keys)


def fields_to_remove(live: Object, desired: Object, manager: str) -> Iterator[str]:
    """Paths of fields that `manager` owns by apply in `live` and that `desired` lacks."""
    for entry in live["metadata"].get("managedFields") or ():
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            fields = entry.get("fieldsV1") or {}
            yield from _owned_beyond(
                json.loads(fields) if isinstance(fields, str) else fields, desired, ""
            )  # text: a cache's


def _owned_beyond(owned: Mapping[str, Json], desired: Json, path: str) -> Iterator[str]:
    for name, inner in owned.items():
        if name == ".":
            continue
        kind, _, key = name.partition(":")
        here = f"{path}.{key}" if path else key
        found, value = _step(kind, key, desired)
        if not found:
            yield here
        elif inner:
            yield from _owned_beyond(inner, value, here)


def _step(kind: str, key: str, desired: Json) -> tuple[bool, Json]:
    """(found, value) in `desired` of one step of a fieldsV1 path: f:NAME, k:{KEYS}, v:VALUE or i:INDEX."""
    if kind == "f":
        return (True, desired[key]) if isinstance(desired, dict) and key in desired else (False, None)
    if not isinstance(desired, list | tuple):
        return False, None
    if kind == "i":
        return (True, desired[int(key)]) if int(key) < len(desired) else (False, None)
    wanted = _decoded(key)
    for item in desired:
        if kind == "v" and item == wanted:
            return True, item
        if (
            kind == "k"
            and isinstance(item, dict)
            and all(item.get(k, "TCP" if k == "protocol" else None) == v for k, v in wanted.items())
        ):
            return True, item
    return False, None


@lru_cache(maxsize=4096)
def _decoded(key: str) -> Json:
    """The JSON of a step; cached, since services share the paths. Callers must not change it."""
    return json.loads(key)
