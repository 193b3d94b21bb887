"""Field managers: which one has set a field of an object, by its managedFields."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from octavo.operator.groups.snapshot import Object
from octavo.operator.planning.apply_diff import Path

Fields = Mapping[str, Any]  # Any: fieldsV1


def manager_of(live: Object, path: Path, own: str) -> str:
    """The manager beside `own` that has set the field, the latest of several; "" if there is none.

    Of a field that is gone no manager is known: then the one that has changed the object last.
    """
    others = [
        entry
        for entry in live["metadata"].get("managedFields") or ()
        if entry.get("manager") != own and entry.get("subresource") != "status"
    ]
    setting = [entry for entry in others if _covers(entry.get("fieldsV1") or {}, path)]
    found = setting or ([] if _is_set(live, path) else others)
    latest = max(found, key=lambda entry: str(entry.get("time") or ""), default=None)
    return str(latest.get("manager") or "") if latest else ""


def _covers(fields: Fields, path: Path) -> bool:
    """True if the fields contain the path, or a field that is one value and contains it."""
    for number, step in enumerate(path):
        inner = next((fields[key] for key in _keys(fields, step)), None)
        if inner is None:
            return number > 0 and set(fields) <= {"."}
        fields = inner
    return True


def _keys(fields: Fields, step: str | tuple[tuple[str, Any], ...]) -> Iterator[str]:  # Any: JSON
    """Keys of fieldsV1 for a step of a path."""
    if isinstance(step, str):
        if f"f:{step}" in fields:
            yield f"f:{step}"
        return
    known = dict(step)
    for key in fields:
        if key.startswith("k:"):
            item = json.loads(key[2:])
            if all(known.get(name) == value for name, value in item.items()):
                yield key


def _is_set(live: Any, path: Path) -> bool:  # Any: JSON
    for step in path:
        if isinstance(step, str):
            live = live.get(step) if isinstance(live, Mapping) else None
        else:
            items = live if isinstance(live, list) else []
            live = next((item for item in items if all(item.get(key, value) == value for key, value in step)), None)
        if live is None:
            return False
    return True


def shown(path: Path) -> str:
    """The path for people, such as spec.template.spec.containers[worker].image."""
    text = ""
    for step in path:
        text += f".{step}" if isinstance(step, str) else f"[{step[0][1]}]"
    return text.removeprefix(".")
