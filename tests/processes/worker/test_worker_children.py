"""The supervisor's children at awkward moments: one ends unseen, none can be started."""

import asyncio
import itertools
import os

import pytest
from support.patience import PATIENCE_S

from octavo.worker.config import Config
from octavo.worker.ipc.process_context import ProcessContext, create_shared
from octavo.worker.membership.status import GroupState
from octavo.worker.supervisor import child_processes
from octavo.worker.supervisor.child_processes import Children
from octavo.worker.supervisor.fork_server_client import ForkServerClient
from octavo.worker.supervisor.incarnation_run import IncarnationRun, RunSpec

ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")
SECOND_OF_TWO = {"tensor": 2, "ranks_per_pod": 1, "pod_index": 1, "peers": ("unix:/tmp/x", "unix:/tmp/y")}


async def test_a_child_that_ended_unseen_does_not_keep_the_others_from_being_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(child_processes._MODULES, "no_such_process", "octavo.worker.no_such_process")
    shared = create_shared(1)
    config = Config(model="/m", served_name="m", **ADDRESSES)
    children = Children(ForkServerClient())
    try:
        share = ProcessContext(
            config, "/m", "f", "i", shared, local="unix:/tmp/y", report=-1, rank=-1, parent=os.getpid()
        )
        pid = children.start("no_such_process", share)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now, and no SIGCHLD was handled
        children.signal("no_such_process", 15)
        await asyncio.wait_for(children.kill(), PATIENCE_S)
    finally:
        shared.close()
    assert [(ended.name, ended.code) for ended in children.exits] == [("no_such_process", 1)]
    assert children.unkillable_s == 0


async def test_an_incarnation_that_cannot_start_its_processes_fails_and_the_supervisor_goes_on(
    monkeypatch: pytest.MonkeyPatch,
):
    def no_more_processes(*args: object, **more: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", no_more_processes)
    config = Config(model="/m", served_name="m", pod_name="chat-0-0", **ADDRESSES)
    run = IncarnationRun(
        RunSpec(config, "/m", "f", "unix:/tmp/y", os.getpid(), 0), GroupState(), Children(ForkServerClient())
    )
    try:
        failed = await asyncio.wait_for(run.run(), PATIENCE_S)
    finally:
        run.close()
    assert failed is not None
    assert (failed.pod, failed.rank, failed.reason) == ("chat-0-0", -1, "StartFailed")
    assert "Resource temporarily unavailable" in failed.message


async def test_an_incarnation_whose_ranks_could_not_be_forked_for_memory_says_so(monkeypatch: pytest.MonkeyPatch):
    async def killed(*args: object) -> None:
        raise OSError("the process that ranks are forked from has ended")

    monkeypatch.setattr(ForkServerClient, "fork_rank", killed)
    monkeypatch.setattr("octavo.worker.supervisor.incarnation_run.oom_kills", itertools.count().__next__)
    config = Config(model="/m", served_name="m", pod_name="chat-0-1", **ADDRESSES, **SECOND_OF_TWO)
    run = IncarnationRun(
        RunSpec(config, "/m", "f", "unix:/tmp/y", os.getpid(), 0), GroupState(), Children(ForkServerClient())
    )
    run.joined("incarnation")
    try:
        failed = await asyncio.wait_for(run.run(), PATIENCE_S)
    finally:
        run.close()
    assert failed is not None
    assert (failed.pod, failed.rank, failed.reason) == ("chat-0-1", -1, "OOMKilled")
    assert "resources.limits.memory" in failed.message
