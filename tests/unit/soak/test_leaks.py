"""What a service holds after a soak is compared with what it held before: each kind of leak is found."""

from dataclasses import replace

import pytest
from support.soak.leaks import Sample, Usage, leaks, left_behind, unbalanced, usage
from support.soak.process_table import Process, Role

IDLE = Sample(
    roles={Role.CORE: Usage(2, 40, 30), Role.RANK: Usage(2, 380, 26)},
    zombies=0,
    files=("octavo-1", "octavo-1/0-0-serve.sock"),
    workers={"0": {"requests_running": 0.0, "kv_blocks_used": 0.0}},
    router={"open_requests": 0.0},
)
LEAKS = {
    "a process too many": replace(IDLE, roles={**IDLE.roles, Role.CORE: Usage(3, 40, 30)}),
    "a process too few": replace(IDLE, roles={Role.CORE: IDLE.roles[Role.CORE]}),
    "memory": replace(IDLE, roles={**IDLE.roles, Role.CORE: Usage(2, 140, 30)}),
    "descriptors": replace(IDLE, roles={**IDLE.roles, Role.CORE: Usage(2, 40, 60)}),
    "zombies": replace(IDLE, zombies=1),
    "files": replace(IDLE, files=(*IDLE.files, "octavo-worker-x")),
    "shared memory": replace(IDLE, shared_files=("ring",)),
    "blocks": replace(IDLE, workers={"0": {"requests_running": 0.0, "kv_blocks_used": 3.0}}),
    "running requests": replace(IDLE, workers={"0": {"requests_running": 1.0, "kv_blocks_used": 0.0}}),
    "open requests": replace(IDLE, router={"open_requests": 1.0}),
}


def test_a_service_that_holds_what_it_held_leaks_nothing() -> None:
    warmed = replace(IDLE, roles={Role.CORE: Usage(2, 60, 31), Role.RANK: Usage(2, 400, 24)})
    assert list(leaks(IDLE, IDLE)) == [] == list(leaks(IDLE, warmed))


@pytest.mark.parametrize("end", LEAKS.values(), ids=list(LEAKS))
def test_a_leak_is_found(end: Sample) -> None:
    assert len(list(leaks(IDLE, end))) == 1


def test_usage_counts_processes_that_live_and_takes_the_largest() -> None:
    one = Process(1, Role.CORE, "S", 0, 10, 5 << 20, 7)
    other = replace(one, pid=2, resident_bytes=9 << 20, descriptors=3)
    assert usage([one, other, replace(one, pid=3, state="Z")]) == {"core": Usage(2, 9, 7)}


def test_whatever_is_left_behind_is_named() -> None:
    process = Process(12, Role.RANK, "S", 1, 10, 0, 0)
    assert list(left_behind([], (), ())) == []
    found = list(left_behind([process], ["octavo-worker-x"], ["ring"]))
    assert found == [
        "rank 12 is left (S)",
        "TMPDIR: 1 files are left: octavo-worker-x",
        "/dev/shm: 1 files are left: ring",
    ]


def test_a_job_that_has_not_ended_is_found() -> None:
    router = {"jobs_submitted_total": 9.0, "jobs_finished_total": 7.0, "jobs_cancelled_total": 1.0}
    router["jobs_cut_total"] = 1.0
    assert list(unbalanced(router)) == []
    assert list(unbalanced(router | {"jobs_cut_total": 0.0})) == ["router: 9 jobs were submitted, 8 have ended"]
