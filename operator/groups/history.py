"""History: the pod template of each revision, kept in a ControllerRevision, with the record of its rollout.

The template is `data`, which the API server does not let change. The record is an annotation, so that it survives the
operator; a damaged one counts as empty. `revision`, a number, is the order in which revisions became the target.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.operator.groups import names
from octavo.operator.groups.groups import timestamp, unix
from octavo.operator.groups.snapshot import Object

Json = Any  # Any: JSON of any shape


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a rollout that has not completed."""

    serving: int  # the most groups of the revision that have served at once
    since_s: float | None  # Unix time since which that number has not grown; None: no groups are desired


@dataclass(frozen=True, slots=True)
class Rollback:
    """Why the groups were taken back from a revision, and to which."""

    revision: str  # that the groups went back to
    at_s: float  # Unix time
    reason: str  # CamelCase
    message: str


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a revision. completed: all desired groups were of it and served."""

    served: bool = False
    completed: bool = False
    progress: Progress | None = None  # None: its last rollout completed
    rollback: Rollback | None = None  # of this revision


@dataclass(frozen=True, slots=True)
class Kept:
    """A ControllerRevision of the service."""

    revision: str
    number: int
    template: Object | None  # None: `data` cannot be used
    live: Object
    record: Record = field(default_factory=Record)

    @property
    def host_folders(self) -> tuple[str, ...]:
        """Folders of the node that its pods mount, which the operator may forbid later."""
        volumes = self.template["spec"].get("volumes") or () if self.template else ()
        return tuple(str(volume["hostPath"]["path"]) for volume in volumes if "hostPath" in volume)


def kept_workers(service: str, revisions: Iterable[Object]) -> Mapping[str, Kept]:
    """The kept revisions of the workers, by revision."""
    return {item.revision: item for item in _kept("worker", revisions, lambda r: names.worker_revision(service, r))}


def kept_routers(service: str, revisions: Iterable[Object]) -> Mapping[str, Kept]:
    """The kept revisions of the routers, by revision."""
    return {item.revision: item for item in _kept("router", revisions, lambda r: names.router_revision(service, r))}


def next_number(kept: Mapping[str, Kept], target: str) -> int:
    """Number of the target: its own if it is the highest, else one more than the highest."""
    highest = max((item.number for item in kept.values()), default=0)
    return highest if target in kept and kept[target].number == highest else highest + 1


def last_good(kept: Iterable[Kept]) -> str | None:
    """The last revision whose rollout completed, else the last of which a group has served; None: there is none."""
    able = [item for item in kept if item.template and item.record.served]
    newest = max(able, key=lambda item: (item.record.completed, item.number), default=None)
    return newest.revision if newest else None


def to_prune(kept: Mapping[str, Kept], in_use: frozenset[str], limit: int) -> tuple[Kept, ...]:
    """Revisions beyond the limit, and revisions that cannot be used. Revisions in use do not count.

    Revisions that have served are kept longest, of these the newest.
    """
    idle = [item for item in kept.values() if item.revision not in in_use and item.template]
    order = sorted(idle, key=lambda item: (item.record.completed, item.record.served, item.number), reverse=True)
    return (*order[limit:], *(item for item in kept.values() if item.template is None))


def data(template: Object) -> Json:
    """`data` of a ControllerRevision."""
    return {"spec": {"template": template}}


def encode(record: Record) -> str:
    """Text of the annotation, which `parse` reads; "" for an empty record."""
    entries: dict[str, Json] = {}
    if record.served:
        entries["served"] = True
    if record.completed:
        entries["completed"] = True
    if record.progress:
        since = {} if record.progress.since_s is None else {"since": timestamp(record.progress.since_s)}
        entries["progress"] = {"serving": record.progress.serving, **since}
    if record.rollback:
        back = record.rollback
        entries["rollback"] = {
            "to": back.revision,
            "at": timestamp(back.at_s),
            "reason": back.reason,
            "message": back.message,
        }
    return json.dumps(entries, sort_keys=True) if entries else ""


def parse(text: str) -> Record:
    """The record in an annotation; parts that cannot be read are left out."""
    try:
        entries = json.loads(text) if text else {}
    except ValueError:
        entries = {}
    if not isinstance(entries, dict):
        return Record()
    return Record(
        served=entries.get("served") is True,
        completed=entries.get("completed") is True,
        progress=_progress(entries.get("progress")),
        rollback=_rollback(entries.get("rollback")),
    )


def _progress(entry: Json) -> Progress | None:
    try:
        return Progress(int(entry["serving"]), unix(entry.get("since")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _rollback(entry: Json) -> Rollback | None:
    try:
        return Rollback(str(entry["to"]), unix(entry["at"]) or 0.0, str(entry["reason"]), str(entry["message"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _kept(component: str, revisions: Iterable[Object], name: Callable[[str], str]) -> Iterator[Kept]:
    for item in revisions:
        revision = names.label(item, names.REVISION)
        if names.label(item, names.COMPONENT) == component and item["metadata"]["name"] == name(revision):
            record = parse(names.annotation(item, names.RECORD))
            yield Kept(revision, int(item.get("revision") or 0), _template(item.get("data")), item, record)


def _template(kept: Json) -> Object | None:
    try:
        template = (json.loads(kept) if isinstance(kept, str) else kept)["spec"]["template"]
    except (ValueError, KeyError, TypeError):
        return None
    return template if isinstance(template, dict) and isinstance(template.get("spec"), dict) else None
