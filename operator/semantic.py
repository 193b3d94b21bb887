"""Does a live object already hold what we wish? Compares only what we own, by meaning: `1000m` is `1`.

`holds` asks whether every wished field has the wished value; what the API server filled in or others added is ignored.
`leftovers` finds what we once applied and no longer wish, from managedFields: server-side apply must run to remove it.
Both together say whether a write can be skipped. Wished objects leave out what is zero: the API server drops it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from octavo.operator.quantity import quantity
from octavo.operator.snapshot import Object

Json = Any  # Any: JSON of any shape

# Lists whose items are known by a key (server-side apply merges them); every other list is one value.
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


def unchanged(live: Object, wish: Object, manager: str) -> bool:
    """True if applying `wish` as `manager` would change nothing."""
    return holds(live, wish) and not any(leftovers(live, wish, manager))


def holds(live: Json, wish: Json, field: str = "", whole: bool = False) -> bool:
    """True if `live` has every field of `wish` with a value of the same meaning.

    `field` is the name under which both stand; `whole` says that they are inside a list that is one value.
    """
    if isinstance(wish, dict):
        if not isinstance(live, dict):
            return live is None and _empty(wish)
        amounts = field in _QUANTITIES
        return all(holds(live.get(key), value, "amount" if amounts else key, whole) for key, value in wish.items())
    if isinstance(wish, list | tuple):
        return _holds_list(live, wish, field, whole)
    if field in ("amount", "sizeLimit"):
        return live == wish or (quantity(live) is not None and quantity(live) == quantity(wish))
    return type(live) is type(wish) and bool(live == wish)


def _empty(wish: Json) -> bool:
    """True for what the API server may leave out: nothing, or objects of nothing."""
    return wish is None or wish == [] or (isinstance(wish, dict) and all(_empty(value) for value in wish.values()))


def _holds_list(live: Json, wish: Sequence[Json], field: str, whole: bool) -> bool:
    if not isinstance(live, list | tuple):
        return live is None and not wish
    keys = None if whole else _KEYS.get(field)
    if keys:
        by_key = {_identity(item, keys): item for item in live}
        return all(holds(by_key.get(_identity(item, keys)), item) for item in wish)
    return len(live) == len(wish) and all(holds(old, new, whole=True) for old, new in zip(live, wish, strict=True))


def _identity(item: Mapping[str, Json], keys: tuple[str, ...]) -> tuple[Json, ...]:
    return tuple(item.get(key, "TCP" if key == "protocol" else None) for key in keys)


def leftovers(live: Object, wish: Object, manager: str) -> Iterator[str]:
    """Paths of fields that `manager` owns by apply in `live` and that `wish` lacks."""
    for entry in live["metadata"].get("managedFields") or ():
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            fields = entry.get("fieldsV1") or {}
            yield from _beyond(json.loads(fields) if isinstance(fields, str) else fields, wish, "")  # text: a cache's


def _beyond(owned: Mapping[str, Json], wish: Json, path: str) -> Iterator[str]:
    for name, inner in owned.items():
        if name == ".":
            continue
        kind, _, key = name.partition(":")
        here = f"{path}.{key}" if path else key
        found, value = _step(kind, key, wish)
        if not found:
            yield here
        elif inner:
            yield from _beyond(inner, value, here)


def _step(kind: str, key: str, wish: Json) -> tuple[bool, Json]:
    """What `wish` has at one step of a fieldsV1 path: f:NAME, k:{KEYS}, v:VALUE or i:INDEX."""
    if kind == "f":
        return (True, wish[key]) if isinstance(wish, dict) and key in wish else (False, None)
    if not isinstance(wish, list | tuple):
        return False, None
    if kind == "i":
        return (True, wish[int(key)]) if int(key) < len(wish) else (False, None)
    wanted = _decoded(key)
    for item in wish:
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
    """The JSON of a step, which the services have in common. It is only read."""
    return json.loads(key)
