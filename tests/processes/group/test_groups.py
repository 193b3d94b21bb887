"""A group of several pods gives the answers of one rank, and whatever part of it is lost, it serves again by itself."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import pytest
from support.models.checkpoints import random_checkpoint, successor_checkpoint
from support.patience import PATIENCE_S, Bound
from support.processes.process_table import is_running
from support.worker.group import GroupProcesses, group
from support.worker.joins import PodEar
from support.worker.worker import Answer, RouterClient, WorkerProcess, client, serving, until

from octavo.proto.v1 import group_pb2
from octavo.worker.membership.pod import Membership

GONE_S = 2 * 2.0  # twice the aim, from when a loss is noticed
NOTICE_S = 5.0  # a pod that says nothing, or a step that does not return
STREAMS = 12
PROMPTS = [list(range(3 + i, 40 + 3 * i)) for i in range(6)]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return successor_checkpoint(tmp_path_factory.mktemp("model") / "letters")


async def _texts(worker: WorkerProcess) -> list[list[int]]:
    async with client(worker) as router:
        answers = [await router.submit(prompt, 24) for prompt in PROMPTS]
        await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), PATIENCE_S)
        return [answer.ids for answer in answers]


async def test_a_group_in_one_pod_and_one_spread_over_four_answer_as_one_rank_does(tmp_path: Path) -> None:
    model = random_checkpoint(tmp_path / "random")
    async with serving(model) as worker:
        expected, digest = await _texts(worker), (await worker.status()).model.digest
    for tensor, pipeline, per_pod, between in ((2, 1, 2, []), (2, 2, 1, [group_pb2.GRPC])):
        async with group(model, tensor, pipeline, per_pod) as one:
            assert len(one.pods) == tensor * pipeline // per_pod
            assert await _texts(one.leader) == expected, f"{tensor} x {pipeline}, {per_pod} a pod"
            status = await one.leader.status()
            assert (status.collective, status.activations) == ([group_pb2.GLOO], between)
            assert status.model.digest == digest != "", "of the model, not of how ranks share it"


async def _streams(router: RouterClient) -> list[Answer]:
    answers = [await router.submit([ord("a") + n % 26], 1900) for n in range(STREAMS)]
    await until(lambda: all(answer.ids for answer in answers))
    return answers


def _right(number: int, ids: list[int]) -> bool:
    """Whether `ids` begin the right answer to request `number`."""
    return ids == [ord("a") + (number + 1 + n) % 26 for n in range(len(ids))]


async def _serves_again(one: GroupProcesses, before: str, bound: Bound | None = None) -> None:
    """Within the bound, else within that of a recovery from now."""
    bound = bound or Bound(one.recovery_s)
    while (status := await one.leader.status()).phase != group_pb2.SERVING or status.incarnation == before:
        assert not bound.over, f"not within {bound}\n{one.text()}"
        await asyncio.sleep(0.1)
    bound.kept()
    await one.ready()
    async with client(one.leader) as router:
        answer = await router.submit([ord("a")], 3)
        await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
        assert _right(0, answer.ids)


@pytest.fixture(scope="module")
def pipeline(letters: Path) -> Iterator[GroupProcesses]:
    """Two pods of a stage each, shared by tests that leave it serving."""
    yield from _shared(letters, 1, 2)


@pytest.fixture(scope="module")
def tensor(letters: Path) -> Iterator[GroupProcesses]:
    """Two pods that share every layer."""
    yield from _shared(letters, 2, 1)


def _shared(model: Path, tensor: int, pipeline: int) -> Iterator[GroupProcesses]:
    one = GroupProcesses(model, tensor, pipeline, 1).start()
    try:
        asyncio.run(one.ready())
        yield one
    finally:
        one.close()


@pytest.fixture(params=["pipeline", "tensor"])
def two_pods(request: pytest.FixtureRequest) -> GroupProcesses:
    shared: GroupProcesses = request.getfixturevalue(request.param)
    return shared


async def test_a_lost_rank_is_named_the_others_go_with_it_and_the_group_serves_again(two_pods: GroupProcesses) -> None:
    for victim in (0, 1):
        before = await two_pods.leader.status()
        ranks = two_pods.ranks()
        async with client(two_pods.leader) as router:
            answers = await _streams(router)
            os.kill(two_pods.pods[victim].ranks()[0], signal.SIGKILL)
            bound = Bound(two_pods.recovery_s)
            await until(lambda pids=ranks: not any(is_running(pid) for pid in pids), GONE_S, two_pods.text)
            await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), PATIENCE_S)
            assert all(answer.lost and not answer.finish for answer in answers), "no stream ends as if it were complete"
            assert all(_right(number, answer.ids) for number, answer in enumerate(answers))
        await _serves_again(two_pods, before.incarnation, bound)
        failure = (await two_pods.leader.status()).last_failure
        named = (failure.pod, failure.rank, failure.reason, failure.exit_code)
        assert named == (f"group-0-{victim}", victim, "RankExited", -signal.SIGKILL), two_pods.text()


async def test_a_stopped_rank_is_found_out_by_its_step_and_named(two_pods: GroupProcesses) -> None:
    before = await two_pods.leader.status()
    ranks = two_pods.ranks()
    async with client(two_pods.leader) as router:
        await _streams(router)
        os.kill(two_pods.pods[1].ranks()[0], signal.SIGSTOP)
        # Busy tests make predictions long; a hang is a step of more than ten times its own.
        await until(lambda: not any(is_running(pid) for pid in ranks), 60 + GONE_S, two_pods.text)
    await _serves_again(two_pods, before.incarnation)
    failure = (await two_pods.leader.status()).last_failure
    assert (failure.pod, failure.rank, failure.reason) == ("group-0-1", 1, "RankStuck"), two_pods.text()


async def test_a_pod_that_is_lost_or_silent_ends_the_incarnation_and_joins_the_next(pipeline: GroupProcesses) -> None:
    follower = pipeline.pods[1]
    for loss, reason in ((signal.SIGKILL, "SupervisorLost"), (signal.SIGSTOP, "SupervisorSilent")):
        before, ranks = await pipeline.leader.status(), pipeline.leader.ranks()
        follower.signal(loss)
        noticed = NOTICE_S if loss is signal.SIGSTOP else 0.0
        await until(lambda pids=ranks: not any(is_running(pid) for pid in pids), noticed + GONE_S, pipeline.text)
        if loss is signal.SIGKILL:
            follower.start()
        else:
            follower.signal(signal.SIGCONT)
        await _serves_again(pipeline, before.incarnation)
        failure = (await pipeline.leader.status()).last_failure
        assert (failure.pod, failure.reason) == ("group-0-1", reason), pipeline.text()


async def test_a_lost_leader_frees_the_other_pods_for_its_next_incarnation(pipeline: GroupProcesses) -> None:
    before, ranks = (await pipeline.leader.status()).incarnation, pipeline.pods[1].ranks()
    pipeline.leader.signal(signal.SIGKILL)
    await until(lambda: not any(is_running(pid) for pid in ranks), GONE_S, pipeline.text)
    assert pipeline.pods[1].get("health", "/readyz")[0] == 503
    pipeline.leader.start()
    await _serves_again(pipeline, before)


async def test_sigterm_to_any_pod_drains_the_group_and_cuts_no_stream(pipeline: GroupProcesses) -> None:
    for stopped in (1, 0):
        restarts = (await pipeline.leader.status()).restarts
        async with client(pipeline.leader) as router:
            answers = [await router.submit([ord("a") + n], 60) for n in range(STREAMS)]
            await until(lambda answers=answers: all(answer.ids for answer in answers))
            pipeline.pods[stopped].signal(signal.SIGTERM)
            await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), PATIENCE_S)
            whole = [len(answer.ids) == 60 and _right(n, answer.ids) for n, answer in enumerate(answers)]
            assert all(whole), pipeline.text()
        assert await pipeline.pods[stopped].exit_code() == 0
        await until(lambda pod=1 - stopped: pipeline.pods[pod].get("health", "/readyz")[0] == 503)
        pipeline.pods[stopped].start()
        await pipeline.ready()
        drained = 0 if stopped == 0 else restarts  # a leader that was started again counts from zero
        assert (await pipeline.leader.status()).restarts == drained, "a drain is no failure"


async def test_a_pod_that_goes_on_after_it_was_replaced_elsewhere_stands_back(letters: Path) -> None:
    async with group(letters, 1, 2) as one:
        before, old = (await one.leader.status()).incarnation, one.pods[1]
        new = WorkerProcess(letters, *old.flags, addresses={"group": old.addresses["group"]}).start()
        try:
            await until(lambda: not old.ranks(), PATIENCE_S, one.text)
            one.pods[1] = new
            await _serves_again(one, before)
            failure = (await one.leader.status()).last_failure
            assert (failure.pod, failure.reason) == ("group-0-1", "PodReplaced")
            assert (old.ranks(), old.get("health", "/readyz")[0]) == ([], 503)
            old.signal(signal.SIGTERM)
            assert await old.exit_code() == 0
        finally:
            old.close()
            new.close()


async def test_a_group_that_waits_for_a_pod_is_not_said_to_load(tmp_path: Path) -> None:
    one = GroupProcesses(random_checkpoint(tmp_path / "random"), 1, 3)
    one.leader.start()
    try:
        await until(lambda: one.leader.get("health", "/livez")[0] == 200, PATIENCE_S, one.text)
        async with asyncio.timeout(PATIENCE_S):
            while not (status := await one.leader.status()).model.outline:
                await asyncio.sleep(0.1)
        ear, outline = PodEar(), status.model.outline
        shake = group_pb2.JoinHandshake(pod=1, outline=outline, tensor=1, pipeline=3, ranks=1, name="group-0-1")
        async with grpc.aio.insecure_channel(one.leader.addresses["group"]) as channel:
            joining = asyncio.create_task(Membership(shake, ear).join(channel))
            await asyncio.wait_for(ear.entered.wait(), PATIENCE_S)
            await asyncio.sleep(2.0)
            joining.cancel()
        assert set(ear.phases) == {group_pb2.STARTING}, "else the leader takes the wait for a load that is stuck"
    finally:
        one.close()


async def test_a_pod_with_another_model_is_refused_and_the_status_says_so(tmp_path: Path, letters: Path) -> None:
    one = GroupProcesses(letters, 1, 2)
    one.pods[1].add_flags("--model", str(random_checkpoint(tmp_path / "other")))
    one.start()
    try:
        await until(lambda: one.leader.get("health", "/livez")[0] == 200, PATIENCE_S, one.text)
        async with asyncio.timeout(PATIENCE_S):
            while (status := await one.leader.status()).last_failure.reason != "JoinRefused":
                await asyncio.sleep(0.2)
        assert status.last_failure.pod == "group-0-1"
        assert "outline" in status.last_failure.message
    finally:
        one.close()
