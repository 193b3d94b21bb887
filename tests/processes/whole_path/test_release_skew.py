"""A router and a worker of this release and of the one before it work together; what is further apart is refused by
both ends, and the router's health page and metrics say so."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.processes import commands
from support.processes.earlier_release import earlier
from support.processes.forked import Main
from support.router.fake_leader import Script, serving
from support.router.jobs import until
from support.router.routers import RunningRouter, routing
from support.worker.worker import RouterClient, WorkerProcess

from octavo import __version__
from octavo.release import PROTOCOL

PROMPT = {"model": "m", "prompt": "xyz", "max_tokens": 8, "temperature": 0}
ANSWER = "abcdefgh"


@asynccontextmanager
async def working(model: Path, main: Main) -> AsyncIterator[WorkerProcess]:
    worker = WorkerProcess(model, "--served-name", "m")
    worker.main = main
    try:
        await worker.start().ready()
        yield worker
    finally:
        worker.close()


@pytest.mark.parametrize("older", ["router", "worker"])
async def test_a_router_and_a_worker_of_this_release_and_the_earlier_one_work_together(
    older: str, tmp_path: Path
) -> None:
    mains: dict[str, Main] = {"router": commands.main, "worker": commands.main}
    mains[older] = earlier(tmp_path / "earlier")
    async with working(successor_checkpoint(tmp_path / "model", eos=None), mains["worker"]) as worker:
        async with routing([worker.addresses["serve"]], main=mains["router"]) as router:
            processes = {"router": router.process.pid, "worker": worker.pid}
            assert {name for name, pid in processes.items() if _runs(pid, tmp_path / "earlier")} == {older}
            await _answers(router)
            long = asyncio.create_task(router.events("/v1/completions", {**PROMPT, "max_tokens": 400}))
            await until(lambda: worker.metric("octavo_worker_requests_running") > 0 or long.done())
            worker.signal(signal.SIGTERM)
            events = await long
            assert events[-1] == "[DONE]" and not any("error" in event for event in events)
            assert await worker.exit_code(PATIENCE_S) == 0


def _runs(pid: int, tree: Path) -> bool:
    """Whether the process imports from this tree."""
    return f"PYTHONPATH={tree}/src".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


async def _answers(router: RunningRouter) -> None:
    """The same as within one release: text, log-probabilities, bounds, forms and refusals."""
    status, answer = await router.post("/v1/completions", {**PROMPT, "logprobs": 2, "min_tokens": 8})
    assert status == 200 and answer["choices"][0]["text"] == ANSWER
    assert len(answer["choices"][0]["logprobs"]["token_logprobs"]) == 8
    status, answer = await router.post("/v1/completions", {**PROMPT, "stop": "ef", "seed": 3})
    assert (status, answer["choices"][0]["text"]) == (200, "abcd")
    status, answer = await router.post("/v1/completions", {**PROMPT, "guided_regex": "abq", "max_tokens": 3})
    assert (status, answer["choices"][0]["text"]) == (200, "abq")
    status, answer = await router.post("/v1/completions", {**PROMPT, "prompt": "x" * 5000})
    assert status == 400, answer


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL, PROTOCOL + 1])
async def test_a_router_takes_a_group_of_a_neighbouring_protocol(protocol: int, tmp_path: Path) -> None:
    address, model = f"unix:{tmp_path}/leader", successor_checkpoint(tmp_path / "model")
    async with serving(Script(protocol=protocol, tokenizer=model), address), routing([address]) as router:
        assert (await _groups(router))["connected"] == 1
        assert await router.sample("octavo_router_skewed_groups") == 0


async def test_a_group_too_far_away_gets_nothing_and_is_named_until_it_is_replaced(tmp_path: Path) -> None:
    near, far = (f"unix:{tmp_path}/{name}" for name in ("near", "far"))
    known = Script(tokenizer=successor_checkpoint(tmp_path / "model"))
    async with routing([near, far], ready=False) as router:
        async with serving(replace(known, protocol=PROTOCOL + 2, release="9.8.7"), far) as leader:
            await _until(router, lambda groups: "skew" in groups["missing"][0])
            assert await router.status("/readyz") == 503
            (why,) = (entry["skew"] for entry in (await _groups(router))["missing"] if entry["address"] == far)
            assert "9.8.7" in why and __version__ in why and "spec.restartAt" in why
            assert await router.sample("octavo_router_skewed_groups") == 1
            async with serving(known, near) as other:
                await _until(router, lambda groups: groups["connected"] == 1)
                for _ in range(4):
                    assert (await router.post("/v1/completions", {"prompt": [1], "max_tokens": 2}))[0] == 200
                assert len(other.submits) == 4 and not leader.submits
        async with serving(known, far):
            await _until(router, lambda groups: all(entry["address"] != far for entry in groups["missing"]))
            assert await router.sample("octavo_router_skewed_groups") == 0
            assert await router.status("/readyz") == 200


async def _groups(router: RunningRouter) -> dict[str, Any]:  # Any: JSON
    async with router.session.get(f"{router.url}/readyz") as response:
        return dict((await response.json())["groups"])


async def _until(router: RunningRouter, holds: Callable[[dict[str, Any]], bool]) -> None:  # Any: JSON
    """Of the groups on its health page."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(await _groups(router)):
            await asyncio.sleep(0.05)


async def test_a_worker_refuses_a_router_too_far_away_and_says_its_own_release_first(tmp_path: Path) -> None:
    async with working(successor_checkpoint(tmp_path / "model"), commands.main) as worker:
        for protocol in (max(0, PROTOCOL - 1), PROTOCOL + 1):
            near = await RouterClient(worker.addresses["serve"], protocol=protocol).open()
            assert near.welcome.digest and near.welcome.protocol == PROTOCOL
            answer = await near.submit([ord("x")], 2)
            await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
            assert len(answer.ids) == 2
            await near.close()
        for _ in range(3):  # a router tries for ever
            far = await RouterClient(worker.addresses["serve"], protocol=PROTOCOL + 2).open()
            assert (far.welcome.protocol, far.welcome.release, far.welcome.digest) == (PROTOCOL, __version__, "")
            await asyncio.wait_for(far.ended.wait(), PATIENCE_S)
            assert far.code == grpc.StatusCode.FAILED_PRECONDITION
            await far.close()
        assert worker.text().count("router test is of release 7.0.0") == 1, "one line in the log is enough"
        assert (await worker.status()).release == __version__
