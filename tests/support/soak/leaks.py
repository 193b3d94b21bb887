"""What an idle service holds, sampled; and whether it holds more after a soak than before. The comparison is pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.soak.process_table import Process, Role
from support.soak.service import Gauges

MIB = 1 << 20
# What a role may have grown by: pages that it touches once (graphs, caches, arenas of the allocator) are no leak.
GROWN_MIB = {Role.RANK: 96, Role.CORE: 64, Role.ROUTER_PROCESS: 64}
OTHERS_MIB = 48
DESCRIPTORS = 8
IDLE_WORKER = ("requests_running", "requests_waiting", "kv_blocks_used")
IDLE_ROUTER = ("open_requests", "queue_requests", "running_requests")
ENDS = (
    "finished", "cancelled", "cut", "poisoned", "worn_out", "rejected", "queue_full", "no_capacity",
    "deadline_exceeded", "model_changed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one role: processes, and the most that one of them holds."""

    count: int
    resident_mib: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Sample:
    """files: of TMPDIR, shared_files: of /dev/shm."""

    roles: Mapping[str, Usage]
    zombies: int
    files: tuple[str, ...] = ()
    shared_files: tuple[str, ...] = ()
    workers: Mapping[str, Gauges] = field(default_factory=dict)
    router: Gauges = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:  # Any: JSON
        roles = {role: [one.count, one.resident_mib, one.descriptors] for role, one in sorted(self.roles.items())}
        return {"count, MiB, descriptors": roles, "zombies": self.zombies, "files": len(self.files)}


def usage(processes: Sequence[Process]) -> dict[str, Usage]:
    alive = [one for one in processes if not one.ended]
    grouped = {role: [one for one in alive if one.role is role] for role in {one.role for one in alive}}
    return {
        str(role): Usage(
            len(some), max(one.resident_bytes for one in some) // MIB, max(one.descriptors for one in some)
        )
        for role, some in grouped.items()
    }


def leaks(idle: Sample, end: Sample) -> Iterator[str]:
    """Between an idle service before the faults, and the same long after them."""
    for role in sorted({*idle.roles, *end.roles}):
        before, after = (sample.roles.get(role, Usage(0, 0, 0)) for sample in (idle, end))
        if after.count != before.count:
            yield f"{role}: {after.count} processes, {before.count} before"
            continue
        if after.resident_mib > before.resident_mib + GROWN_MIB.get(Role(role), OTHERS_MIB):
            yield f"{role}: {after.resident_mib} MiB resident, {before.resident_mib} before"
        if after.descriptors > before.descriptors + DESCRIPTORS:
            yield f"{role}: {after.descriptors} descriptors, {before.descriptors} before"
    if end.zombies:
        yield f"{end.zombies} zombies"
    yield from _more("TMPDIR", idle.files, end.files)
    yield from _more("/dev/shm", idle.shared_files, end.shared_files)
    yield from _busy(end)


def unbalanced(router: Gauges) -> Iterator[str]:
    """Of an idle router of which no process was lost: each job has ended in one way."""
    ended = sum(router.get(f"jobs_{name}_total", 0) for name in ENDS)
    submitted = router.get("jobs_submitted_total", 0)
    if submitted != ended:
        yield f"router: {submitted:.0f} jobs were submitted, {ended:.0f} have ended"


def _more(place: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Names have random parts: what counts is how many there are of each folder."""
    if len(after) > len(before):
        new = sorted({*after} - {*before})
        yield f"{place}: {len(after)} files, {len(before)} before; new: {', '.join(new[:6])}"


def _busy(end: Sample) -> Iterator[str]:
    for group, gauges in end.workers.items():
        for name in IDLE_WORKER:
            if gauges.get(name, 0):
                yield f"group {group}: {name} is {gauges[name]:.0f} though nothing is asked"
    for name in IDLE_ROUTER:
        if end.router.get(name, 0):
            yield f"router: {name} is {end.router[name]:.0f} though nothing is asked"


def left_behind(processes: Sequence[Process], files: Sequence[str], shared_files: Sequence[str]) -> Iterator[str]:
    """After the service has ended."""
    for one in processes:
        yield f"{one.role} {one.pid} is left ({one.state})"
    for place, names in (("TMPDIR", files), ("/dev/shm", shared_files)):
        if names:
            yield f"{place}: {len(names)} files are left: {', '.join(names[:6])}"
