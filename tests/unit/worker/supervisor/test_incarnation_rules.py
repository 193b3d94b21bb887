"""The rules by which an incarnation begins, is watched, ends and is followed by another."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.shared.liveness import Presence
from octavo.worker.config import Config, parse_bytes
from octavo.worker.errors import ConfigError
from octavo.worker.ipc.process import Report
from octavo.worker.lifecycle.backoff import Backoff
from octavo.worker.lifecycle.incarnation import Identity, Incarnation
from octavo.worker.lifecycle.liveness import ProcessHealth, Violation, Watch, check
from octavo.worker.scheduler.step_deadline import StepDeadline
from octavo.worker.supervisor.cgroup import oom_kills
from octavo.worker.supervisor.child_processes import Exit
from octavo.worker.supervisor.failure import name_exit, root_cause
from octavo.worker.supervisor.fork_server_client import environment

S = 10**9
ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")
OURS = Identity("uid", "revision", "model")


def test_the_wait_between_incarnations_doubles_to_10_s_and_a_good_incarnation_resets_it():
    backoff, waits = Backoff(), []
    for _ in range(8):
        wait, backoff = backoff.after(served_s=1.0)
        waits.append(wait)
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    wait, backoff = backoff.after(served_s=61.0)
    assert (wait, backoff.next_s) == (0.2, 0.4)


def _pulses(now_s, **changes):
    values = {"serve": now_s, "core": now_s, "progress": 0, "deadline": 0} | changes
    return [
        ProcessHealth("serve", -1, int(values["serve"] * S), 5, 0),
        ProcessHealth("core", -1, int(values["core"] * S), 5, 0, int(values["deadline"] * S)),
        ProcessHealth("rank", 0, 0, 3, values["progress"], beats=False),
    ]


def _look_until(end_s, serving, start=10.0, **changes):
    watch, now = Watch.begun(int(start * S)), start
    while now < end_s:
        now += 0.25
        current = {key: value(now) if callable(value) else value for key, value in changes.items()}
        watch, violation = check(watch, _pulses(now, **current), serving, int(now * S))
        if violation is not None:
            return now, violation
    return None


def test_a_process_silent_for_5_s_ends_the_incarnation_and_is_named():
    when, violation = _look_until(60, serving=True, core=10.0)
    assert 15.0 < when <= 15.5
    assert (violation.reason, violation.rank) == ("CoreStuck", -1)


def test_a_step_beyond_its_deadline_is_the_ranks_fault():
    when, violation = _look_until(60, serving=True, deadline=20.0)
    assert 20.0 < when <= 20.5
    assert (violation.reason, violation.rank) == ("RankStuck", 0)


def test_of_several_ranks_that_do_not_return_the_stopped_one_is_blamed_else_the_one_with_the_fewest_steps():
    core = ProcessHealth("core", -1, 20 * S, 5, 0, deadline_ns=20 * S)
    ranks = [ProcessHealth("rank", rank, 20 * S, 5, 100, finished=7 - rank, beats=False) for rank in range(3)]
    _, violation = check(Watch.begun(20 * S), [core, *ranks], True, 21 * S)
    assert violation.rank == 2
    stopped = [ranks[0], replace(ranks[1], heartbeat_ns=16 * S), ranks[2]]
    _, violation = check(Watch.begun(20 * S), [core, *stopped], True, 21 * S)
    assert violation.rank == 1


def test_a_rank_that_only_lost_its_peer_is_not_the_cause_when_there_is_a_better_one():
    follower = Exit("rank", 1, 1, Report("PeerLost", "rank 0 is gone"), killed=False)
    victim = Exit("rank", 0, -9, None, killed=False)
    swept = Exit("serve", -1, -9, None, killed=True)
    reported = Violation("LeaderLost", -1, "")
    assert root_cause([follower, victim], None) is victim
    assert root_cause([follower, swept], reported) is reported
    assert root_cause([swept, follower], None) is follower


def test_loading_may_take_for_ever_as_long_as_it_progresses():
    assert _look_until(900, serving=False, progress=lambda now: int(now // 100)) is None
    when, violation = _look_until(900, serving=False)
    assert 130 < when <= 131
    assert violation.reason == "LoadStalled"


def test_a_stalled_load_names_the_rank_that_has_got_least_far():
    ranks = [
        ProcessHealth("rank", rank, 200 * S, 3, progress, beats=False) for rank, progress in enumerate((100, 40, 70))
    ]
    leader = [ProcessHealth("serve", -1, 200 * S, 0, 0), ProcessHealth("core", -1, 200 * S, 0, 0)]
    progress = tuple((health.phase, health.progress) for health in (*leader, *ranks))
    seen = Watch(Presence(200.0), 10.0, progress)
    _, violation = check(seen, [*leader, *ranks], False, 201 * S)
    assert (violation.reason, violation.rank) == ("LoadStalled", 1) and "rank 1" in violation.message
    _, violation = check(seen, [replace(leader[0], heartbeat_ns=0), leader[1], *ranks], False, 201 * S)
    assert (violation.reason, violation.rank) == ("LoadStalled", -1) and "serve" in violation.message


def test_a_supervisor_that_was_held_up_itself_judges_no_process_at_once():
    watch = Watch.begun(10 * S)
    watch, violation = check(watch, _pulses(10.0), True, 40 * S)
    assert violation is None
    watch, violation = check(watch, _pulses(40.0), True, int(40.25 * S))
    assert violation is None


def test_a_step_is_overdue_after_5_s_or_ten_times_its_prediction_from_when_it_had_the_device():
    steps = StepDeadline()
    assert steps.deadline_ns == 0
    steps.issued(100 * S, 0.01)
    steps.issued(101 * S, 2.0)
    assert steps.deadline_ns == 105 * S
    assert steps.returned(104 * S) == 4 * S
    assert steps.deadline_ns == 124 * S
    assert steps.returned(110 * S) == 6 * S
    assert steps.deadline_ns == 0
    assert steps.idle_ns(112 * S) == 2 * S


def test_only_pods_of_the_same_service_revision_model_and_shape_belong_to_an_incarnation():
    incarnation = Incarnation("a", OURS, pods=1)
    strangers = (
        Identity("x", "revision", "model"), Identity("uid", "x", "model"), Identity("uid", "revision", "x"),
        replace(OURS, shape=(2, 1, 1)),
    )  # fmt: skip
    for other in strangers:
        assert "pod 0 is" in (incarnation.join(0, "chat-0-0", other, 0.0) or "")
    assert "pod 1" in (incarnation.join(1, "chat-0-1", OURS, 0.0) or "")
    assert not incarnation.complete
    assert incarnation.join(0, "chat-0-0", OURS, 0.0) is None
    assert incarnation.complete
    assert "already" in (incarnation.join(0, "chat-0-0", OURS, 0.0) or "")


def test_messages_of_an_old_incarnation_are_refused_and_counted():
    incarnation = Incarnation("new", OURS, pods=1)
    incarnation.join(0, "chat-0-0", OURS, 0.0)
    assert not incarnation.hear(0, "old", 1.0)
    assert not incarnation.hear(3, "new", 1.0)
    assert incarnation.late == 2
    assert incarnation.hear(0, "new", 1.0)


def test_a_pod_that_is_heard_to_its_end_did_not_fall_silent():
    incarnation = Incarnation("one", OURS, pods=1)
    incarnation.join(0, "group-0-0", OURS, now_s=0.0)
    assert not incarnation.fell_silent(0, 1.9)
    assert incarnation.fell_silent(0, 2.1)
    incarnation.hear(0, "one", 2.1)
    assert not incarnation.fell_silent(0, 4.0)
    assert not incarnation.fell_silent(1, 100.0), "a pod that is not there cannot be silent"


@given(st.lists(st.tuples(st.integers(1, 80), st.booleans()), min_size=1, max_size=60))
def test_processes_and_pods_are_found_silent_at_the_same_moments(checks):
    """checks: quarters of a second since the last, and whether there was a sign."""
    pods, watch, now, beat = Incarnation("a", OURS, pods=1), Watch.begun(100 * S), 100.0, 100.0
    pods.join(0, "chat-0-0", OURS, now)
    pods.silent(now)
    for quarters, heard in checks:
        now += quarters / 4
        if heard:
            beat = now
            pods.hear(0, "a", now)
        watch, violation = check(watch, [ProcessHealth("core", -1, int(beat * S), 5, 0)], True, int(now * S))
        assert (violation is not None) == (pods.silent(now) == [0])


def test_a_pod_that_is_silent_for_5_s_is_found_unless_the_leader_slept_too():
    incarnation = Incarnation("a", OURS, pods=1)
    incarnation.join(0, "chat-0-0", OURS, 0.0)
    assert [incarnation.silent(t / 2) for t in range(11)] == [[]] * 11
    assert incarnation.silent(5.5) == [0]
    assert incarnation.silent(60.0) == []


@pytest.mark.parametrize(
    ("report", "code", "oom", "reason"),
    [
        (Report("OutOfDeviceMemory", "text"), 1, False, "OutOfDeviceMemory"),
        (None, -9, True, "OOMKilled"),
        (None, -9, False, "RankExited"),
        (None, -11, True, "RankExited"),
        (None, 3, False, "RankExited"),
    ],
)
def test_an_exit_is_named_by_what_the_child_said_then_the_kernel_then_its_code(report, code, oom, reason):
    failure = name_exit("pod", Exit("rank", 0, code, report, killed=False), oom)
    assert (failure.reason, failure.exit_code, failure.rank, failure.pod) == (reason, code, 0, "pod")
    assert failure.message


def test_oom_kills_are_read_from_both_versions_of_control_groups(tmp_path):
    assert oom_kills(tmp_path) == 0
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert oom_kills(tmp_path) == 3
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n")
    assert oom_kills(tmp_path) == 2


def test_amounts_of_memory_are_read_as_kubernetes_and_people_write_them():
    pairs = {"64MiB": 64 << 20, "512Mi": 512 << 20, "1.5Gi": 3 << 29, "2G": 2 * 10**9, "1048576": 1 << 20}
    assert {text: parse_bytes("--kv-cache-memory", text) for text in pairs} == pairs


def test_plaintext_is_for_this_machine_only():
    Config(model="m", served_name="m", **{**ADDRESSES, "serve": "127.0.0.1:8500"})
    with pytest.raises(ConfigError, match="--serve"):
        Config(model="m", served_name="m", **{**ADDRESSES, "serve": "10.0.0.1:8500"})


def test_a_ranks_threads_sleep_at_barriers_and_the_users_own_setting_wins():
    one = {"OPENBLAS_NUM_THREADS": "1"}
    assert environment({"A": "b"}) == {"A": "b", "OMP_WAIT_POLICY": "PASSIVE", **one}
    for own in ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "1000"}):
        assert environment(own) == own | one
