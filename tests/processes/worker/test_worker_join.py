"""Join between real supervisors' sides and a real leader's side, over a socket."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from support.patience import PATIENCE_S
from support.worker.joins import LeaderEar, PodEar
from support.worker.worker import until

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.config import Config
from octavo.worker.lifecycle import incarnation
from octavo.worker.lifecycle.incarnation import Identity, Incarnation
from octavo.worker.membership import pod
from octavo.worker.membership.leader import GroupServicer
from octavo.worker.membership.pod import LeaderLost, Membership
from octavo.worker.tls import Roles

ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")
Ending = asyncio.Task[group_pb2.Failure | None]


class Group:
    """A leader for two pods, and their way in."""

    def __init__(self, address: str) -> None:
        roles = Roles(Config(model="/m", served_name="m", **ADDRESSES))
        self.heard = LeaderEar()
        self.leader = GroupServicer(Incarnation("one", Identity("", "", "f", (1, 2, 1)), pods=2), roles, self.heard)
        self._address = address
        self._tasks: list[Ending] = []

    def join(self, pod: int, outline: str = "f", started_at_ms: int = 0) -> tuple[Membership, PodEar, Ending]:
        shake = group_pb2.JoinHandshake(
            pod=pod,
            outline=outline,
            tensor=1,
            pipeline=2,
            ranks=1,
            name=f"chat-0-{pod}",
            started_at_ms=started_at_ms,
        )
        ear = PodEar()
        membership = Membership(shake, ear)
        task = asyncio.create_task(self._belong(membership))
        self._tasks.append(task)
        return membership, ear, task

    async def _belong(self, membership: Membership) -> group_pb2.Failure | None:
        async with grpc.aio.insecure_channel(self._address) as channel:
            return await membership.join(channel)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    address = f"unix:{tmp_path}/leader.sock"
    one = Group(address)
    server = grpc.aio.server()
    group_pb2_grpc.add_GroupServicer_to_server(one.leader, server)
    server.add_insecure_port(address)
    await server.start()
    yield one
    await one.close()
    await server.stop(0)


async def test_a_pod_that_vanishes_ends_the_incarnation_of_its_group(group: Group) -> None:
    _, ear, task = group.join(1)
    await asyncio.wait_for(ear.entered.wait(), PATIENCE_S)
    task.cancel()  # the channel is closed without a word
    await asyncio.wait_for(group.leader.ended.wait(), PATIENCE_S)
    assert group.leader.failure is not None
    assert (group.leader.failure.reason, group.leader.failure.pod) == ("SupervisorLost", "chat-0-1")


async def test_a_pod_whose_stream_breaks_after_it_fell_silent_is_called_silent(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod, "_HEARTBEAT_S", 60.0)
    monkeypatch.setattr(incarnation, "MISSED_S", 0.5)
    _, ear, task = group.join(1)
    await asyncio.wait_for(ear.entered.wait(), PATIENCE_S)
    await until(lambda: group.leader.incarnation.fell_silent(1, time.monotonic()))
    task.cancel()
    await asyncio.wait_for(group.leader.ended.wait(), PATIENCE_S)
    assert group.leader.failure is not None
    assert (group.leader.failure.reason, group.leader.failure.pod) == ("SupervisorSilent", "chat-0-1")


async def test_a_pod_that_cannot_say_how_its_ranks_are_says_why_and_ends_the_incarnation(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heartbeat(_: PodEar) -> group_pb2.Heartbeat:
        raise ValueError("Value out of range: -1")

    monkeypatch.setattr(PodEar, "heartbeat", heartbeat)
    _, _, task = group.join(1)
    failure = await asyncio.wait_for(task, PATIENCE_S)
    assert failure is not None
    assert (failure.reason, failure.pod, failure.rank) == ("SupervisorFailed", "chat-0-1", -1)
    assert "ValueError: Value out of range: -1" in failure.message


async def test_steps_go_to_the_other_pods_and_what_their_ranks_say_comes_back(group: Group) -> None:
    _, leads, _ = group.join(0)
    membership, follows, _ = group.join(1)
    await asyncio.wait_for(asyncio.gather(leads.entered.wait(), follows.entered.wait()), PATIENCE_S)
    group.leader.step(b"a step")
    group.leader.show(group_pb2.SERVING)
    membership.record(b"a result")
    await until(lambda: follows.steps == [b"a step"] and group.heard.records == [b"a result"])
    await until(lambda: leads.phases[-1:] == follows.phases[-1:] == [group_pb2.SERVING])
    await until(lambda: {0, 1} <= set(group.heard.beats))
    assert leads.steps == []


async def test_a_pod_that_is_asked_to_stop_drains_the_group(group: Group) -> None:
    membership, ear, task = group.join(1)
    await asyncio.wait_for(ear.entered.wait(), PATIENCE_S)
    membership.drain()
    await asyncio.wait_for(group.heard.drained.wait(), PATIENCE_S)
    group.leader.end(None)
    assert await asyncio.wait_for(task, PATIENCE_S) is None


async def test_a_pod_that_is_asked_to_stop_before_it_knows_that_it_joined_drains_the_group(group: Group) -> None:
    membership, ear, _ = group.join(0)
    membership.drain()
    assert not ear.entered.is_set()
    await asyncio.wait_for(group.heard.drained.wait(), PATIENCE_S)
    assert group.leader.incarnation.late == 0


async def test_the_rank_that_went_first_is_named_and_not_the_one_that_missed_it(group: Group) -> None:
    first, leads, task = group.join(0)
    second, follows, _ = group.join(1)
    await asyncio.wait_for(asyncio.gather(leads.entered.wait(), follows.entered.wait()), PATIENCE_S)
    first.failed(group_pb2.Failure(pod="chat-0-0", rank=0, reason="PeerLost", message="rank 1 is gone"))
    await asyncio.sleep(0.1)
    second.failed(group_pb2.Failure(pod="chat-0-1", rank=1, reason="RankExited", exit_code=-9, message="killed"))
    failure = await asyncio.wait_for(task, PATIENCE_S)
    assert failure is not None
    assert (failure.pod, failure.rank, failure.reason, failure.exit_code) == ("chat-0-1", 1, "RankExited", -9)


async def test_a_lost_peer_ends_the_incarnation_when_no_rank_can_say_more(group: Group) -> None:
    membership, ear, task = group.join(1)
    await asyncio.wait_for(ear.entered.wait(), PATIENCE_S)
    membership.failed(group_pb2.Failure(pod="chat-0-1", rank=1, reason="PeerLost", message="rank 0 is gone"))
    failure = await asyncio.wait_for(task, PATIENCE_S)
    assert failure is not None and failure.reason == "PeerLost"


async def test_a_pod_with_another_model_is_refused_by_name_and_the_incarnation_that_waits_for_it_ends(
    group: Group,
) -> None:
    _, ear, task = group.join(0)
    await asyncio.wait_for(ear.entered.wait(), PATIENCE_S)
    _, _, refused = group.join(1, outline="other")
    with pytest.raises(LeaderLost, match="outline of pod 1 is 'other'"):
        await asyncio.wait_for(refused, PATIENCE_S)
    failure = await asyncio.wait_for(task, PATIENCE_S)
    assert failure is not None
    assert (failure.reason, failure.pod) == ("JoinRefused", "chat-0-1")


async def test_a_stale_pod_does_not_disturb_a_complete_group(group: Group) -> None:
    _, leads, task = group.join(0)
    _, follows, _ = group.join(1)
    await asyncio.wait_for(asyncio.gather(leads.entered.wait(), follows.entered.wait()), PATIENCE_S)
    _, _, refused = group.join(1, outline="old")
    with pytest.raises(LeaderLost, match="already"):
        await asyncio.wait_for(refused, PATIENCE_S)
    assert group.leader.incarnation.late == 1
    assert not task.done() and not group.leader.ended.is_set()


async def test_a_new_pod_ends_the_incarnation_of_the_one_before_it_and_no_older_one_does(group: Group) -> None:
    _, ear, task = group.join(1, started_at_ms=2)
    await asyncio.wait_for(ear.entered.wait(), PATIENCE_S)
    for started_at_ms in (1, 2):
        with pytest.raises(LeaderLost, match="already"):
            await asyncio.wait_for(group.join(1, started_at_ms=started_at_ms)[2], PATIENCE_S)
    with pytest.raises(LeaderLost, match="already"):
        await asyncio.wait_for(group.join(1, outline="old", started_at_ms=3)[2], PATIENCE_S)
    assert not task.done() and not group.leader.ended.is_set()
    with pytest.raises(LeaderLost, match="already"):
        await asyncio.wait_for(group.join(1, started_at_ms=3)[2], PATIENCE_S)
    failure = await asyncio.wait_for(task, PATIENCE_S)
    assert failure is not None
    assert (failure.reason, failure.pod) == ("PodReplaced", "chat-0-1")


async def test_a_pod_whose_heartbeat_cannot_be_its_own_ends_the_incarnation_and_is_named(group: Group) -> None:
    group.heard.objection = "pod 1 tells of 3 ranks, and has 1"
    _, _, task = group.join(1)
    failure = await asyncio.wait_for(task, PATIENCE_S)
    assert failure is not None
    assert (failure.reason, failure.pod, failure.message) == ("JoinRefused", "chat-0-1", group.heard.objection)


async def test_a_refused_pod_leaves_nothing_running(group: Group) -> None:
    before = len(asyncio.all_tasks())  # the server's next call takes the place of the one before
    with pytest.raises(LeaderLost, match="not one of the group's 2"):
        await asyncio.wait_for(group.join(9)[2], PATIENCE_S)
    await until(lambda: len(asyncio.all_tasks()) <= before, PATIENCE_S, lambda: str(asyncio.all_tasks()))
