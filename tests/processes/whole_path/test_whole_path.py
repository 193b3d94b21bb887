"""Two routers and two groups, all real: what clients see over HTTP when something under them breaks."""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.router.routers import RunningRouter, routing
from support.worker.worker import WorkerProcess, until

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the routers' sessions belong to one loop

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
RECOVERED_S = 20.0  # twice the 10 s in which a killed process's group must serve again
# A rank that hangs is noticed after ten times what its step was expected to take, which a busy machine has made long.
UNSTUCK_S = 60


@dataclass
class Streamed:
    """What one client got. text is what was shown; errors and dones count the frames of that kind."""

    text: str = ""
    finish: str | None = None
    errors: int = 0
    done: bool = False
    status: int = 0

    @property
    def whole(self) -> bool:
        return self.done and not self.errors and self.finish is not None


def expected(tokens: int) -> str:
    """What follows "a": the alphabet, round and round."""
    return "".join(ALPHABET[(at + 1) % 26] for at in range(tokens))


Pair = tuple[list[RunningRouter], list[WorkerProcess]]


async def stream(router: RunningRouter, tokens: int, begun: asyncio.Event | None = None) -> Streamed:
    seen = Streamed()
    body = {"model": "m", "prompt": "a", "temperature": 0, "max_tokens": tokens, "stream": True}
    async with router.session.post(router.url + "/v1/completions", json=body) as answer:
        seen.status = answer.status
        async for line in answer.content:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                seen.done = True
                continue
            event = json.loads(line[6:])
            if "error" in event:
                seen.errors += 1
                continue
            choice = event["choices"][0]
            seen.text += choice["text"]
            seen.finish = choice["finish_reason"] or seen.finish
            if begun is not None and seen.text:
                begun.set()
    return seen


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return successor_checkpoint(tmp_path_factory.mktemp("model") / "m")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(model: Path) -> AsyncIterator[Pair]:
    """Two routers and two groups, all starting at once; `pair` waits for them."""
    workers = [WorkerProcess(model, "--served-name", "m").start() for _ in range(2)]
    try:
        groups = [worker.addresses["serve"] for worker in workers]
        flags = ("--served-name", "m")
        async with routing(groups, *flags, ready=False) as one, routing(groups, *flags, ready=False) as two:
            yield [one, two], workers
    finally:
        for worker in workers:
            worker.close()


@pytest_asyncio.fixture(loop_scope="module")
async def pair(started: Pair) -> Pair:
    """The same processes for every test, whole again after what the one before did to them."""
    routers, workers = started
    for worker in workers:
        if worker.process is None or worker.process.poll() is not None:
            worker.start()
    await asyncio.gather(*(worker.ready() for worker in workers))
    await until(lambda: all(worker.metric("octavo_worker_requests_running") == 0 for worker in workers))
    for router in routers:
        async with asyncio.timeout(PATIENCE_S):
            while not await _reaches_both(router, workers):
                await asyncio.sleep(0.1)
    return started


async def _reaches_both(router: RunningRouter, workers: list[WorkerProcess]) -> bool:
    before = [worker.metric("octavo_worker_requests_total") for worker in workers]
    await asyncio.gather(*(stream(router, 20) for _ in range(4)))
    after = [worker.metric("octavo_worker_requests_total") for worker in workers]
    return all(now > then for now, then in zip(after, before, strict=True))


async def begin(routers: list[RunningRouter], count: int, tokens: int) -> list[asyncio.Task[Streamed]]:
    """`count` streams, spread over the routers, each with its first text out."""
    begun = [asyncio.Event() for _ in range(count)]
    tasks = [
        asyncio.create_task(stream(routers[index % len(routers)], tokens, event)) for index, event in enumerate(begun)
    ]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(event.wait() for event in begun))
    return tasks


def assert_honest(answers: list[Streamed], tokens: int) -> None:
    """Whole answers are right; cut ones are a prefix, one error, and no finish reason."""
    for answer in answers:
        if answer.whole:
            assert answer.text == expected(tokens)
        else:
            assert (answer.errors, answer.done, answer.finish) == (1, False, None), answer
            assert expected(tokens).startswith(answer.text)


@pytest.mark.parametrize("victim", ["supervisor", "serve", "core", "rank"])
async def test_a_killed_process_cuts_only_its_own_groups_streams(pair: Pair, victim: str) -> None:
    routers, workers = pair
    tasks = await begin(routers, 20, 400)
    pid = workers[0].pid if victim == "supervisor" else workers[0].children()[victim]
    os.kill(pid, signal.SIGKILL)
    answers = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    assert_honest(answers, 400)
    assert 0 < sum(answer.whole for answer in answers) < 20, "one group's streams are cut, the other's are not"
    if victim == "supervisor":
        workers[0].start()
    await workers[0].ready(RECOVERED_S)
    after = await asyncio.gather(*(stream(router, 20) for router in routers * 5))
    assert all(answer.whole and answer.text == expected(20) for answer in after)


async def test_what_has_not_begun_survives_a_killed_rank(pair: Pair) -> None:
    routers, workers = pair
    load = [asyncio.create_task(_asking(routers[index % 2], 15)) for index in range(8)]
    await asyncio.sleep(0.3)
    os.kill(workers[1].children()["rank"], signal.SIGKILL)
    for answers in await asyncio.wait_for(asyncio.gather(*load), PATIENCE_S):
        assert answers == [(200, expected(3))] * 15


async def _asking(router: RunningRouter, times: int) -> list[tuple[int, str]]:
    """Short requests that are not streamed: a client sees nothing of one until it is whole."""
    answers = []
    for _ in range(times):
        body = {"model": "m", "prompt": "a", "temperature": 0, "max_tokens": 3}
        status, answer = await router.post("/v1/completions", body)
        answers.append((status, answer["choices"][0]["text"] if status == 200 else str(answer)))
        await asyncio.sleep(0.02)
    return answers


async def test_a_stopped_rank_is_replaced_while_the_other_group_serves(pair: Pair) -> None:
    routers, workers = pair
    tasks = await begin(routers, 10, 1500)  # so that some go on, however late the rank is stopped
    os.kill(workers[0].children()["rank"], signal.SIGSTOP)
    answers = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    assert_honest(answers, 1500)
    assert any(answer.whole for answer in answers) and not all(answer.whole for answer in answers)
    await workers[0].ready(UNSTUCK_S)
    assert (await workers[0].status()).last_failure.reason == "RankStuck"


async def test_a_terminated_worker_cuts_no_stream(pair: Pair) -> None:
    routers, workers = pair
    tasks = await begin(routers, 20, 400)
    workers[0].signal(signal.SIGTERM)
    await all_whole(tasks)
    assert await workers[0].exit_code() == 0
    assert (await stream(routers[0], 5)).whole, "the other group takes what comes next"


async def test_a_terminated_router_cuts_no_stream(pair: Pair) -> None:
    routers, workers = pair
    async with routing([worker.addresses["serve"] for worker in workers], "--served-name", "m") as leaving:
        tasks = await begin([leaving, routers[1]], 20, 400)
        leaving.process.send_signal(signal.SIGTERM)
        await all_whole(tasks)
        assert await leaving.process.ended(PATIENCE_S) == 0


async def all_whole(tasks: list[asyncio.Task[Streamed]]) -> None:
    answers = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    assert all(answer.whole and answer.text == expected(400) for answer in answers)


async def test_clients_that_vanish_leave_nothing_behind(pair: Pair) -> None:
    draw = random.Random(7)
    routers, workers = pair
    idle = [worker.metric("octavo_worker_kv_blocks_used") for worker in workers]
    gate = asyncio.Semaphore(8)

    async def one(index: int) -> None:
        router, leaves = routers[index % 2], index % 3 == 0
        body = {"model": "m", "prompt": "a" * draw.randint(1, 64), "max_tokens": 400 if leaves else 4}
        body |= {"stream": index % 2 == 0, "temperature": 0}
        async with gate:
            patience = aiohttp.ClientTimeout(total=draw.uniform(0.005, 0.2) if leaves else 60)
            try:
                async with router.session.post(router.url + "/v1/completions", json=body, timeout=patience) as answer:
                    await answer.read()
                    assert answer.status == 200
            except TimeoutError:
                assert leaves

    await asyncio.gather(*(one(index) for index in range(300)))

    def settled() -> bool:
        return [worker.metric("octavo_worker_kv_blocks_used") for worker in workers] == idle

    await until(settled, PATIENCE_S, lambda: f"{idle} {[w.get('metrics', '/metrics') for w in workers]}")
