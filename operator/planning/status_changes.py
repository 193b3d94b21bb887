"""What a new status changes, for the log: in one line, without messages that stay long.

Ready=True/Serving, Progressing=False/Complete, readyReplicas 0 -> 1, group 0 Loading -> Serving
"""

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]  # Any: Kubernetes JSON


def status_changes(old: Json, new: Json) -> str:
    """The fields that differ. Of conditions the status and the reason, and the message where only that differs."""
    return ", ".join([*_conditions(old, new), *_fields(old, new), *_groups(old, new)])


def _conditions(old: Json, new: Json) -> Iterator[str]:
    before = {entry["type"]: entry for entry in old.get("conditions") or ()}
    for entry in new.get("conditions") or ():
        kind, was = entry["type"], before.get(entry["type"], {})
        if (was.get("status"), was.get("reason")) != (entry["status"], entry["reason"]):
            yield f"{kind}={entry['status']}/{entry['reason']}"
        elif was.get("message") != entry["message"]:
            yield f"{kind}: {entry['message']}"


def _fields(old: Json, new: Json) -> Iterator[str]:
    for key in dict.fromkeys((*new, *old)):
        if key in ("conditions", "groups") or old.get(key) == new.get(key):
            continue
        if any(isinstance(value, Mapping) for value in (old.get(key), new.get(key))):
            yield key
        else:
            yield f"{key} {_shown(old.get(key))} -> {_shown(new.get(key))}"


def _groups(old: Json, new: Json) -> Iterator[str]:
    before, after = ({entry["index"]: entry for entry in side.get("groups") or ()} for side in (old, new))
    for index in sorted(before.keys() | after.keys()):
        was, now = before.get(index), after.get(index)
        if was == now:
            continue
        if was is None or now is None:
            yield f"group {index} {now['state'] if now else 'is gone'}"
        elif was.get("state") != now.get("state"):
            yield f"group {index} {was.get('state')} -> {now.get('state')}"
        else:
            fields = [key for key in dict.fromkeys((*now, *was)) if was.get(key) != now.get(key)]
            yield f"group {index} {', '.join(fields)}"


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
