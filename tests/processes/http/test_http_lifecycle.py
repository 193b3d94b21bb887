"""A router's lifecycle: starts before its groups, replaces its own dead, drains without cutting anyone."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from support.patience import PATIENCE_S
from support.processes.commands import done
from support.processes.ports import free_port
from support.processes.process_table import is_running
from support.router.fake_leader import FakeLeader, Script, serving
from support.router.jobs import until
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import byte_level, files, write

TOKENIZER = byte_level()
ASKED = {"model": "m", "prompt": "x", "max_tokens": 2}
LONG = 2000  # tokens: 40 s, unless the leader hurries


@pytest.fixture
def script(tmp_path: Path) -> Script:
    model = write(tmp_path / "model", files(TOKENIZER))
    return Script(tokenizer=model, served_name="m", context_length=2048, interval_s=0.02, ids=(300, 301, 302))


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/leader.sock"


@pytest.fixture
async def leader(script: Script, address: str) -> AsyncIterator[FakeLeader]:
    async with serving(script, address) as leader:
        yield leader


async def streams(router: RunningRouter, leader: FakeLeader, count: int) -> list[asyncio.Future[list[str]]]:
    """Under way: each has a connection of its own."""
    asked = ASKED | {"max_tokens": LONG, "stream_options": {"include_usage": True}}
    started = [asyncio.ensure_future(router.events("/v1/completions", asked)) for _ in range(count)]
    await until(lambda: leader.under_way == count)
    return started


async def assert_end_whole(started: list[asyncio.Future[list[str]]], leader: FakeLeader) -> None:
    leader.script = replace(leader.script, interval_s=0.0)
    for events in await asyncio.wait_for(asyncio.gather(*started), PATIENCE_S):
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["usage"]["completion_tokens"] == LONG


async def until_no_client_can_connect(router: RunningRouter) -> None:
    async with aiohttp.ClientSession() as fresh, asyncio.timeout(PATIENCE_S):
        with suppress(aiohttp.ClientConnectionError):
            while True:
                async with fresh.get(f"{router.url}/livez", headers={"Connection": "close"}):
                    await asyncio.sleep(0.05)


async def test_sigterm_under_streams_cuts_none_refuses_new_connections_after_a_delay_and_exits_0(
    leader: FakeLeader, address: str
) -> None:
    async with routing([address], "--processes", "2", "--drain-delay", "3") as router:
        open_streams = await streams(router, leader, 10)
        router.process.send_signal(signal.SIGTERM)
        while await router.status("/routerz") != 503:
            await asyncio.sleep(0.02)
        assert await router.status("/livez") == 200
        status, late = await router.post("/v1/completions", ASKED)
        assert (status, late["usage"]["completion_tokens"]) == (200, 2), "it serves on until the delay is over"
        await until_no_client_can_connect(router)
        await assert_end_whole(open_streams, leader)
        assert await router.process.ended(PATIENCE_S) == 0


async def test_the_grace_period_ends_what_does_not_end_by_itself(leader: FakeLeader, address: str) -> None:
    async with routing([address], "--drain-delay", "0", "--grace-period", "3") as router:
        stuck = await streams(router, leader, 1)
        router.process.send_signal(signal.SIGTERM)
        assert await router.process.ended(PATIENCE_S) == 0
        with pytest.raises(aiohttp.ClientError):
            await stuck[0]


async def test_a_process_that_dies_is_replaced_and_its_counts_stay(leader: FakeLeader, address: str) -> None:
    async with routing([address], "--drain-delay", "0") as router:
        for _ in range(3):
            await router.post("/v1/completions", ASKED)
        assert await router.sample("octavo_router_requests_total") == 3
        (child,) = _children(router.process.pid)
        os.kill(child, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    status, _ = await router.post("/v1/completions", ASKED)
                    break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)
        assert status == 200
        assert await router.sample("octavo_router_requests_total") == 4
        assert await router.sample("octavo_router_process_restarts_total") == 1
        assert await router.stop() == 0


async def test_a_process_that_is_stopped_is_killed_and_replaced(leader: FakeLeader, address: str) -> None:
    async with routing([address], "--processes", "2", "--drain-delay", "0") as router:
        before = _children(router.process.pid)
        async with asyncio.timeout(PATIENCE_S):
            while await router.sample("octavo_router_ready_processes") < 2:  # it has answered once
                await asyncio.sleep(0.1)
        os.kill(before[0], signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_S):
            while before[0] in (now := _children(router.process.pid)) or len(now) < 2:
                await asyncio.sleep(0.05)
        assert await router.sample("octavo_router_process_restarts_total") == 1
        assert before[1] in now, "the other one serves on"
        assert await router.stop() == 0


@pytest.mark.parametrize("flag", ["--http", "--grpc", "--metrics"])
async def test_a_second_router_on_one_port_is_refused_with_advice(
    leader: FakeLeader, address: str, tmp_path: Path, flag: str
) -> None:
    async with routing([address], "--processes", "2", "--drain-delay", "0") as router:
        http, metrics = router.url.removeprefix("http://"), router.metrics_url.split("/")[2]
        taken = {"--http": http, "--grpc": router.grpc, "--metrics": metrics}[flag]
        free = {"--http": f"127.0.0.1:{free_port()}", flag: taken}
        places = [part for place in free.items() for part in place]
        ended = await asyncio.to_thread(done, "router", "--group", f"unix:{tmp_path}/none.sock", *places)
        assert ended.code == 3, ended.err
        assert f"{flag} {taken}: another process listens there" in ended.err and "another port" in ended.err


async def test_helpers_that_are_killed_or_stopped_cost_no_request(leader: FakeLeader, address: str) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    async with routing([address], "--drain-delay", "0") as router:
        (child,) = _children(router.process.pid)
        assert (await router.post("/v1/chat/completions", chat))[0] == 200
        await until(lambda: len(_children(child)) == 2)
        for helper in (helpers := _children(child)):
            os.kill(helper, signal.SIGKILL)
        answers = await asyncio.gather(*(router.post("/v1/chat/completions", chat) for _ in range(4)))
        assert [status for status, _ in answers] == [200] * 4, answers
        await until(lambda: not set(helpers) & set(now := _children(child)) and len(now) == 2)
        stopped = _children(child)[0]
        async with asyncio.timeout(PATIENCE_S):
            while not (killed := await router.sample("octavo_router_helpers_killed_total")):
                os.kill(stopped, signal.SIGCONT)  # it may have been loading: nothing is asked of it then
                await asyncio.sleep(0.2)
                os.kill(stopped, signal.SIGSTOP)
                answers = await asyncio.gather(*(router.post("/v1/chat/completions", chat) for _ in range(4)))
                assert [status for status, _ in answers] == [200] * 4, answers
        assert killed == 1
        assert await router.stop() == 0


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_no_process_outlives_a_parent_that_was_killed(leader: FakeLeader, address: str) -> None:
    async with routing([address]) as router:
        (child,) = _children(router.process.pid)
        await until(lambda: bool(_children(child)))  # its helpers start after it
        family = [child, *_children(child)]
        os.kill(child, signal.SIGSTOP)  # also one that cannot see it
        router.process.kill()
        await until(lambda: not any(is_running(pid) for pid in family))


async def test_requests_wait_for_the_first_group_and_are_answered(script: Script, address: str) -> None:
    async with routing([address], ready=False) as router:
        assert await router.status("/readyz") == 503 and await router.status("/health") == 503
        assert await router.status("/routerz") == 200
        early = asyncio.ensure_future(router.post("/v1/completions", ASKED))
        await asyncio.sleep(0.5)
        async with serving(script, address):
            status, answer = await asyncio.wait_for(early, PATIENCE_S)
            assert (status, answer["usage"]["completion_tokens"]) == (200, 2)


async def test_a_request_that_waits_too_long_is_refused_with_retry_after(address: str) -> None:
    async with routing([address], "--queue-max-wait", "0.5", ready=False) as router:
        async with router.session.post(f"{router.url}/v1/completions", json=ASKED) as response:
            assert response.status == 503 and int(response.headers["Retry-After"]) >= 1
            assert (await response.json())["error"]["code"] == "no_capacity"


FLAGS = [
    (["--processes", "0"], "--processes"),
    (["--http", "nowhere"], "--http"),
    (["--grpc", "nowhere"], "--grpc"),
    (["--http", "127.0.0.1:9", "--grpc", "127.0.0.1:9"], "--grpc"),
    (["--queue-max-wait", "soon"], "--queue-max-wait"),
    (["--tls-dir", "/no/such/folder"], "--tls-dir"),
    (["--endpoints", "a"], "--endpoints"),
    (["--group", "10.0.0.1:8500"], "--group"),
    (["--cors-origin", "example.com"], "--cors-origin"),
]


@pytest.mark.parametrize(("flags", "named"), FLAGS)
def test_wrong_flags_exit_with_2_and_name_the_flag(flags: list[str], named: str) -> None:
    ended = done("router", "--group", "unix:/x", *flags)
    assert ended.code == 2 and named in ended.err
