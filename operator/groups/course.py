"""Course of a rollout: which revision is the target, whether its progress is overdue, and the records to keep.

    target = the desired revision ── no further group of it has served for progressDeadline ──> overdue
                  ^                                                                               │ onFailure: rollback
                  └── another desired revision, or onFailure: pause ── target = the last good revision

A rollout progresses each time more groups of its revision serve at once than before. One that has completed is never
overdue: later failures are no failures of the rollout, nor is the growth to more replicas.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from octavo.operator.groups.groups import Group
from octavo.operator.groups.history import Kept, Progress, Record, Rollback, last_good, next_number


@dataclass(frozen=True, slots=True)
class Policy:
    """What the spec and the operator's flags say of it."""

    groups: int  # desired
    deadline_s: float
    rollback: bool  # onFailure is rollback
    barred: frozenset[str] = frozenset()  # revisions that may not be rolled back to


@dataclass(frozen=True, slots=True)
class Course:
    """Where a rollout goes."""

    desired: str  # revision of the spec
    target: str  # revision that the groups are to have: the desired one, or the one that they were rolled back to
    number: int  # of the target
    records: Mapping[str, Record]  # of the target and of each kept revision
    rollback: Rollback | None = None  # of the desired revision
    overdue: bool = False
    due_s: float | None = None  # Unix time at which the target's progress is overdue


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a course is computed from."""

    kept: Mapping[str, Kept]
    live: tuple[Group, ...]
    policy: Policy
    now: float

    def serving(self, revision: str) -> int:
        return sum(group.serving for group in self.live if group.revision == revision)


def course(
    desired: str,
    kept: Mapping[str, Kept],
    live: Iterable[Group],
    policy: Policy,
    cause: tuple[str, str],
    now: float,
) -> Course:
    """The course. live: groups that are not being deleted. now: Unix time in seconds.

    cause: reason and message of what keeps groups of the desired revision from serving; "" and "" if nothing is known.
    """
    seen = _Seen(kept, tuple(live), policy, now)
    records = {revision: _record(seen, item, desired) for revision, item in kept.items()}
    back = records[desired].rollback if desired in records else None
    able = [item for item in kept.values() if item.revision not in policy.barred | {desired} and item.template]
    if back and policy.rollback and back.revision in {item.revision for item in able}:
        return _towards(seen, back.revision, desired, records, back)
    if back:
        records[desired] = replace(records[desired], rollback=None)
    found = _towards(seen, desired, desired, records, None)
    to = last_good(able) if found.overdue and policy.rollback else None
    if to is None:
        return found
    failed = Rollback(to, now, *cause)
    records = {**found.records, desired: replace(found.records[desired], rollback=failed)}
    return _towards(seen, to, desired, records, failed)


def _record(seen: _Seen, item: Kept, desired: str) -> Record:
    """The record of a kept revision as of now. Another desired revision ends a rollback."""
    served = item.record.served or seen.serving(item.revision) > 0
    return replace(item.record, served=served, rollback=item.record.rollback if item.revision == desired else None)


def _towards(
    seen: _Seen, target: str, desired: str, records: Mapping[str, Record], rollback: Rollback | None
) -> Course:
    """The course to a target. records: of the kept revisions, which the target may not be among."""
    serving, groups = seen.serving(target), seen.policy.groups
    number = next_number(seen.kept, target)
    is_new = target not in seen.kept or seen.kept[target].number != number
    record = records.get(target, Record(served=serving > 0))
    progress = _progress(None if is_new else record.progress, is_new, serving, groups, seen.now)
    complete = 0 < groups <= serving and all(group.revision == target for group in seen.live)
    record = replace(record, progress=None if complete else progress, completed=record.completed or complete)
    since_s = record.progress.since_s if record.progress else None
    due_s = None if since_s is None else since_s + seen.policy.deadline_s
    return Course(
        desired=desired,
        target=target,
        number=number,
        records={**records, target: record},
        rollback=rollback,
        overdue=due_s is not None and seen.now >= due_s,
        due_s=due_s,
    )


def _progress(before: Progress | None, is_new: bool, serving: int, groups: int, now: float) -> Progress | None:
    if before is None and not is_new:
        return None  # the rollout has completed
    if groups == 0:
        return Progress(0, None)
    if before is None or before.since_s is None or serving > before.serving:
        return Progress(serving, now)
    return before
