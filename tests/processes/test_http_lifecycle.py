"""A router's life: starts before its groups, replaces its own dead, drains without cutting anyone."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from support.commands import done
from support.fake_leader import FakeLeader, Script, serving
from support.routers import RunningRouter, routing
from support.vocabularies import byte_level, files, write

pytestmark = pytest.mark.timeout(120)
TOKENIZER = byte_level()
ASKED = {"model": "m", "prompt": "x", "max_tokens": 150}


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


async def streams(router: RunningRouter, count: int, **fields: object) -> list[asyncio.Future[list[str]]]:
    """Under way: each has a connection of its own."""
    asked = ASKED | {"stream_options": {"include_usage": True}} | fields
    started = [asyncio.ensure_future(router.events("/v1/completions", asked)) for _ in range(count)]
    await asyncio.sleep(1.0)
    return started


def assert_whole(events: list[str], tokens: int) -> None:
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] == tokens


async def test_sigterm_under_streams_cuts_none_and_exits_0(leader: FakeLeader, address: str) -> None:
    async with routing([address], "--processes", "2", "--drain-delay", "1") as router:
        open_streams = await streams(router, 10)
        router.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert await router.status("/routerz") == 503
        assert await router.status("/livez") == 200
        status, late = await router.post("/v1/completions", ASKED | {"max_tokens": 2})
        assert (status, late["usage"]["completion_tokens"]) == (200, 2), "it serves on until the delay is over"
        for events in await asyncio.wait_for(asyncio.gather(*open_streams), 30):
            assert_whole(events, 150)
        assert await router.process.ended(30) == 0


async def test_after_the_drain_delay_nobody_can_connect_while_streams_end(leader: FakeLeader, address: str) -> None:
    async with routing([address], "--drain-delay", "0.2") as router:
        (stream,) = await streams(router, 1)
        router.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(1)
        async with aiohttp.ClientSession() as fresh:
            with pytest.raises(aiohttp.ClientConnectionError):
                await fresh.get(f"{router.url}/livez")
        assert_whole(await asyncio.wait_for(stream, 30), 150)
        assert await router.process.ended(30) == 0


async def test_the_grace_period_ends_what_does_not_end_by_itself(leader: FakeLeader, address: str) -> None:
    async with routing([address], "--drain-delay", "0", "--grace-period", "3") as router:
        stuck = await streams(router, 1, max_tokens=2000)
        router.process.send_signal(signal.SIGTERM)
        assert await router.process.ended(15) == 0
        with pytest.raises(aiohttp.ClientError):
            await stuck[0]


async def test_a_process_that_dies_is_replaced_and_its_counts_stay(leader: FakeLeader, address: str) -> None:
    async with routing([address], "--drain-delay", "0") as router:
        for _ in range(3):
            await router.post("/v1/completions", ASKED | {"max_tokens": 1})
        assert await router.sample("octavo_router_requests_total") == 3
        (child,) = _children(router.process.pid)
        os.kill(child, signal.SIGKILL)
        async with asyncio.timeout(30):
            while True:
                try:
                    status, _ = await router.post("/v1/completions", ASKED | {"max_tokens": 1})
                    break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)
        assert status == 200
        assert await router.sample("octavo_router_requests_total") == 4
        assert await router.sample("octavo_router_process_restarts_total") == 1
        assert await router.stop() == 0


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_no_process_outlives_a_parent_that_was_killed(leader: FakeLeader, address: str) -> None:
    async with routing([address]) as router:
        family = _children(router.process.pid)
        family += [helper for child in family for helper in _children(child)]
        assert len(family) >= 2
        router.process.kill()
        async with asyncio.timeout(15):
            while any(Path(f"/proc/{pid}").exists() for pid in family):
                await asyncio.sleep(0.05)


async def test_requests_wait_for_the_first_group_and_are_answered(script: Script, address: str) -> None:
    async with routing([address], ready=False) as router:
        assert await router.status("/readyz") == 503 and await router.status("/health") == 503
        assert await router.status("/routerz") == 200
        early = asyncio.ensure_future(router.post("/v1/completions", ASKED | {"max_tokens": 2}))
        await asyncio.sleep(0.5)
        async with serving(script, address):
            status, answer = await asyncio.wait_for(early, 30)
            assert (status, answer["usage"]["completion_tokens"]) == (200, 2)


async def test_a_request_that_waits_too_long_is_told_so_with_retry_after(address: str) -> None:
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
    (["--api-keys-file", "/no/such/file"], "--api-keys-file"),
    (["--api-keys-file", "/dev/null"], "--api-keys-file"),
    (["--cors-origin", "example.com"], "--cors-origin"),
]


@pytest.mark.parametrize(("flags", "named"), FLAGS)
def test_wrong_flags_exit_with_2_and_name_the_flag(flags: list[str], named: str) -> None:
    ended = done("router", "--group", "unix:/x", *flags)
    assert ended.code == 2 and named in ended.err
