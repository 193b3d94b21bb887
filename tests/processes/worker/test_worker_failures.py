"""Whatever part of a worker dies or hangs, the group serves again by itself and says what happened."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S, Bound
from support.processes.process_table import is_running
from support.worker.worker import WorkerProcess, client, serving, until

from octavo.proto.v1 import group_pb2

RECOVERY_S = 20.0  # twice the aim
STREAMS = 20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return successor_checkpoint(tmp_path_factory.mktemp("model") / "letters")


@pytest.fixture(scope="module")
def workers(model):
    """Started at once. Each is for a few tests that leave it serving: the back-off of more would be waited for."""
    three = [WorkerProcess(model).start() for _ in range(3)]
    try:
        asyncio.run(_all_ready(three))
        yield three
    finally:
        for worker in three:
            worker.close()


async def _all_ready(workers):
    await asyncio.gather(*(worker.ready() for worker in workers))


@pytest.mark.parametrize("victim", ["serve", "core", "rank"])
async def test_a_killed_process_ends_the_streams_and_a_new_incarnation_serves(workers, victim):
    worker = workers[0]
    first = await _serving(worker)
    async with client(worker) as router:
        answers = await _streams(router)
        os.kill(worker.children()[victim], signal.SIGKILL)
        bound = Bound(RECOVERY_S)
        await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), PATIENCE_S)
        assert all(answer.lost and not answer.finish for answer in answers), "no stream ends as if it were complete"
    await _serves_again(worker, first.incarnation, bound)
    status = await worker.status()
    assert status.restarts == first.restarts + 1
    assert status.last_failure.reason == f"{victim.capitalize()}Exited"
    assert status.last_failure.exit_code == -signal.SIGKILL
    assert status.last_failure.rank == (0 if victim == "rank" else -1)
    assert status.last_failure.pod == "local"


async def test_a_killed_supervisor_leaves_no_process_behind(model):
    async with serving(model) as worker, client(worker) as router:
        answers = await _streams(router)
        pids = worker.children().values()
        assert worker.children().keys() == {"serve", "core", "rank", "fork_server"}
        worker.signal(signal.SIGKILL)
        await until(lambda: not any(is_running(pid) for pid in pids))
        await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), PATIENCE_S)
        assert all(answer.lost for answer in answers)


@pytest.mark.parametrize(("victim", "reason"), [("rank", "RankStuck"), ("core", "CoreStuck"), ("serve", "ServeStuck")])
async def test_a_stopped_process_is_found_out_and_replaced(workers, victim, reason):
    worker = workers[1]
    first = await _serving(worker)
    os.kill(worker.children()[victim], signal.SIGSTOP)
    await _serves_again(worker, first.incarnation, Bound(5 + RECOVERY_S))
    status = await worker.status()
    assert status.last_failure.reason == reason
    assert status.restarts == first.restarts + 1


async def test_live_never_fails_and_ready_does_while_a_group_restarts(workers):
    worker = workers[2]
    os.kill(worker.children()["rank"], signal.SIGKILL)
    await until(lambda: worker.get("health", "/readyz")[0] == 503)
    assert worker.get("health", "/livez")[0] == 200
    assert worker.get("health", "/startupz")[0] == 503
    await worker.ready(RECOVERY_S)


async def test_counters_do_not_fall_when_an_incarnation_ends(workers):
    worker = workers[2]
    restarts, tokens = _counters(worker)
    async with client(worker) as router:
        answer = await router.submit([1], 7)
        await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
    os.kill(worker.children()["core"], signal.SIGKILL)
    await until(lambda: _counters(worker)[0] == restarts + 1)
    await worker.ready(RECOVERY_S)
    assert _counters(worker) == (restarts + 1, tokens + 7)


def _counters(worker):
    """(restarts, tokens generated)"""
    return worker.metric("octavo_worker_restarts_total"), worker.metric("octavo_worker_generated_tokens_total")


def _truncate(folder: Path) -> str:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    return "model.safetensors"


def _pointer(folder: Path) -> str:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    return "model.safetensors"


def _no_config(folder: Path) -> str:
    (folder / "config.json").unlink()
    return "config.json"


def _broken_config(folder: Path) -> str:
    (folder / "config.json").write_text("{")
    return "config.json"


def _no_tokenizer(folder: Path) -> str:
    (folder / "tokenizer.json").unlink()
    return "tokenizer.json"


def _huge_header(folder: Path) -> str:
    file = folder / "model.safetensors"
    file.write_bytes((2**63).to_bytes(8, "little") + file.read_bytes()[8:])
    return "model.safetensors"


async def _named(worker, file):
    """The status says that the model cannot be served, and names the file."""
    await until(lambda: worker.get("health", "/livez")[0] == 200, PATIENCE_S, worker.text)
    async with asyncio.timeout(PATIENCE_S):
        while (status := await worker.status()).phase != group_pb2.PHASE_FAILED:
            await asyncio.sleep(0.1)
    assert status.last_failure.reason in ("ModelInvalid", "ModelNotFound")
    assert file in status.last_failure.message
    assert worker.get("health", "/readyz")[0] == 503
    assert set(worker.children()) <= {"fork_server"}, "no process is started for a model that cannot be served"


@pytest.mark.parametrize("spoil", [_truncate, _pointer, _no_config, _broken_config, _no_tokenizer, _huge_header])
async def test_a_bad_model_folder_is_named_in_the_status(tmp_path, spoil):
    folder = successor_checkpoint(tmp_path / "model")
    file = spoil(folder)
    worker = WorkerProcess(folder).start()
    try:
        await _named(worker, file)
    finally:
        worker.close()


async def test_a_bad_model_folder_is_mended_without_a_restart(tmp_path):
    folder = successor_checkpoint(tmp_path / "model")
    worker = WorkerProcess(folder)
    file = _truncate(folder)
    worker.start()
    try:
        await _named(worker, file)
        successor_checkpoint(folder)
        await worker.ready()
    finally:
        worker.close()


async def test_a_setting_that_the_model_cannot_fulfil_is_named_in_the_status(tmp_path):
    worker = WorkerProcess(successor_checkpoint(tmp_path / "model"), "--context-length", "9999").start()
    try:
        await until(lambda: worker.get("health", "/livez")[0] == 200, PATIENCE_S, worker.text)
        async with asyncio.timeout(PATIENCE_S):
            while (status := await worker.status()).phase != group_pb2.PHASE_FAILED:
                await asyncio.sleep(0.1)
        assert status.last_failure.reason == "ConfigInvalid"
        assert "contextLength" in status.last_failure.message
        assert set(worker.children()) <= {"fork_server"}, "no process is started for what cannot be"
    finally:
        worker.close()


async def _streams(router):
    answers = [await router.submit([ord("a") + n % 26], 1900) for n in range(STREAMS)]
    await until(lambda: all(answer.ids for answer in answers))
    return answers


async def _serving(worker, before="", bound=None):
    """The status of an incarnation after `before` that serves. Its supervisor may hear of it a moment later."""
    bound = bound or Bound(PATIENCE_S)
    while (status := await worker.status()).phase != group_pb2.SERVING or status.incarnation in ("", before):
        assert not bound.over, f"not within {bound}\n{worker.text()}"
        await asyncio.sleep(0.1)
    bound.kept()
    return status


async def _serves_again(worker, before, bound):
    await _serving(worker, before, bound)
    async with client(worker) as router:
        answer = await router.submit([ord("a")], 3)
        await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
        assert answer.ids == [ord("b"), ord("c"), ord("d")]
