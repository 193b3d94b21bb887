"""Faults in a loop under streams: every stream is a right beginning that ends once, and the group serves again.

An incarnation survives what is harmless (strangers, a slow link), and so do its streams. The seed is printed and
part of each failure; OCTAVO_FAULT_SEED and OCTAVO_FAULT_ROUNDS repeat or prolong a run.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import grpc.aio
import pytest
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.processes.tcp_proxy import TcpProxy
from support.worker.group import GroupProcesses
from support.worker.joins import PodEar
from support.worker.worker import Answer, RouterClient, client, until

from octavo.proto.v1 import group_pb2
from octavo.worker.distributed.pipeline import wire
from octavo.worker.membership.pod import LeaderLost, Membership

SEED = int(os.environ.get("OCTAVO_FAULT_SEED", time.time_ns() % 100_000))
ROUNDS = int(os.environ.get("OCTAVO_FAULT_ROUNDS", "4"))
pytestmark = pytest.mark.timeout(240 * ROUNDS)

STREAMS, TOKENS = 8, 600
FEWER = 60  # tokens, where nothing is cut and all are waited for
# Silence is noticed after 5 s, a dead link after 10; a busy machine makes predictions of steps long, and a hang is more
# than ten times its own; ranks load again.
AGAIN_S = 90.0


class Net:
    """A group whose pods reach each other through proxies: Join streams to pod 0, activations to every rank."""

    def __init__(self, model: Path) -> None:
        self.proxies: list[TcpProxy] = []
        self.group = GroupProcesses(model, 1, 2, reroute=self._reroute)

    def _reroute(self, pod: int, address: str) -> str:
        seen = f"{address}-seen"
        for suffix in ("", ".0") if pod == 0 else (".0",):
            self.proxies.append(TcpProxy(seen + suffix, address + suffix))
        return seen


@contextlib.asynccontextmanager
async def _net(model: Path) -> AsyncIterator[Net]:
    net = Net(model)
    with contextlib.ExitStack() as proxies:
        for proxy in net.proxies:
            proxies.enter_context(proxy)
        net.group.start()
        try:
            await net.group.ready()
            yield net
        finally:
            net.group.close()


async def _kill_rank(net: Net, dice: random.Random) -> None:
    os.kill(dice.choice(net.group.ranks()), signal.SIGKILL)


async def _stop_rank(net: Net, dice: random.Random) -> None:
    os.kill(dice.choice(net.group.ranks()), signal.SIGSTOP)


async def _kill_leader(net: Net, dice: random.Random) -> None:
    """Between a Step and its result: steps are always under way, an idle group has one each second."""
    os.kill(net.group.leader.children()[dice.choice(["serve", "core"])], signal.SIGKILL)


async def _restart_a_pod_by_hand(net: Net, dice: random.Random) -> None:
    pod = dice.choice(net.group.pods)
    pod.signal(signal.SIGKILL)
    await asyncio.sleep(dice.random())
    pod.start()


async def _freeze_a_pod(net: Net, dice: random.Random) -> None:
    pod = net.group.pods[1]
    pod.signal(signal.SIGSTOP)
    await asyncio.sleep(7)
    pod.signal(signal.SIGCONT)


async def _cut(net: Net, dice: random.Random) -> None:
    proxy = dice.choice(net.proxies)
    proxy.cut()
    await asyncio.sleep(dice.random())
    proxy.heal()


async def _black_hole(net: Net, dice: random.Random) -> None:
    before = (await net.group.leader.status()).restarts
    proxy = dice.choice(net.proxies)
    proxy.black_hole()
    async with asyncio.timeout(AGAIN_S):
        while (await net.group.leader.status()).restarts == before:
            await asyncio.sleep(0.2)
    proxy.heal()


async def _delay(net: Net, dice: random.Random) -> None:
    """By half a second each way: of what is sent meanwhile, and of what comes after it."""
    for proxy in net.proxies:
        proxy.delay_s = 0.5
    await asyncio.sleep(1 + 2 * dice.random())
    for proxy in net.proxies:
        proxy.delay_s = 0.0


async def _another_model_joins(net: Net, dice: random.Random) -> None:
    await _refused(net, outline="other", started_at_ms=2**62)


async def _an_older_pod_joins(net: Net, dice: random.Random) -> None:
    """Of the same name and model, begun before the one that belongs to the group."""
    await _refused(net, outline=(await net.group.leader.status()).model.outline, started_at_ms=1)


async def _refused(net: Net, outline: str, started_at_ms: int) -> None:
    shake = group_pb2.JoinHandshake(
        pod=1, name="group-0-1", tensor=1, pipeline=2, ranks=1, outline=outline, started_at_ms=started_at_ms
    )
    counted = _late(net, 0)
    async with grpc.aio.insecure_channel(net.group.leader.addresses["group"]) as channel:
        with pytest.raises(LeaderLost, match="pod 1 has joined"):
            await asyncio.wait_for(Membership(shake, PodEar()).join(channel), PATIENCE_S)
    await until(lambda: _late(net, 0) > counted)


async def _a_rank_of_an_earlier_incarnation_speaks(net: Net, dice: random.Random) -> None:
    pod = dice.choice([0, 1])
    counted = _late(net, pod)
    introduction = wire.encode_introduction("before", "", 1 - pod)
    async with grpc.aio.insecure_channel(net.group.pods[pod].addresses["group"] + ".0") as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="'before'"):
            await channel.stream_unary(f"/{wire.SERVICE}/Activations")(iter([introduction]), timeout=PATIENCE_S)
    await until(lambda: _late(net, pod) > counted)


def _late(net: Net, pod: int) -> float:
    return net.group.pods[pod].metric("octavo_worker_stale_incarnation_messages_total")


Fault = Callable[[Net, random.Random], Awaitable[None]]
FAULTS: list[Fault] = [_kill_rank, _stop_rank, _kill_leader, _restart_a_pod_by_hand, _freeze_a_pod, _cut, _black_hole]
HARMLESS: list[Fault] = [_delay, _another_model_joins, _an_older_pod_joins, _a_rank_of_an_earlier_incarnation_speaks]
One = TypeVar("One")


def _some(dice: random.Random, of: Sequence[One], count: int) -> list[One]:
    """In any order, none twice before all were dealt."""
    return [one for _ in range(-(-count // len(of))) for one in dice.sample(of, len(of))][:count]


def _check(answers: list[Answer], tokens: int, what: str) -> None:
    """Each is a prefix of the right answer, ended exactly once; whole if it says so. RouterClient sees to no more."""
    for number, answer in enumerate(answers):
        right = [ord("a") + (number + 1 + n) % 26 for n in range(tokens)]
        assert answer.ids == right[: len(answer.ids)], what
        assert answer.done.is_set() and answer.lost == (not answer.finish), what
        assert answer.lost or len(answer.ids) == tokens, what


MOMENTS = ("idle", "prefill", "decode")


async def _begin(router: RouterClient, moment: str, tokens: int) -> list[Answer]:
    """What is under way when something breaks."""
    if moment == "idle":
        return []
    answers = [await router.submit([ord("a") + n], tokens) for n in range(STREAMS)]
    if moment == "decode":
        await until(lambda: all(answer.ids for answer in answers))
    return answers


async def _serves_again(net: Net, what: str) -> None:
    began = time.monotonic()
    while time.monotonic() - began < AGAIN_S:
        with contextlib.suppress(Exception):  # the leader may be going just now
            status = await net.group.leader.status()
            if status.phase == group_pb2.SERVING:
                async with asyncio.timeout(PATIENCE_S), client(net.group.leader) as router:
                    answer = await router.submit([ord("a")], 3)
                    await answer.done.wait()
                    if answer.ids == [ord("b"), ord("c"), ord("d")]:
                        return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{what}: not serving after {AGAIN_S} s\n{net.group.text()}")


async def _round(net: Net, fault: Fault, moment: str, dice: random.Random, what: str) -> None:
    """One fault while something is under way."""
    tokens = FEWER if fault in HARMLESS else TOKENS
    before = await net.group.leader.status()
    async with client(net.group.leader) as router:
        answers = await _begin(router, moment, tokens)
        await fault(net, dice)
        await asyncio.wait_for(asyncio.gather(*(answer.done.wait() for answer in answers)), AGAIN_S)
        _check(answers, tokens, what)
    await _serves_again(net, what)
    if fault in HARMLESS:
        assert not any(answer.lost for answer in answers), f"{what}\n{net.group.text()}"
        after = await net.group.leader.status()
        assert (after.incarnation, after.restarts) == (before.incarnation, before.restarts), (
            f"{what}\n{net.group.text()}"
        )


async def test_after_any_fault_streams_are_right_beginnings_and_the_group_serves_again(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    faults = _some(dice, HARMLESS, max(ROUNDS, len(HARMLESS))) + _some(dice, FAULTS, ROUNDS)
    dice.shuffle(faults)
    async with _net(successor_checkpoint(tmp_path / "letters")) as net:
        for number, fault in enumerate(faults):
            what = f"seed {SEED}, round {number}, {fault.__name__} at {(moment := dice.choice(MOMENTS))}"
            try:
                await _round(net, fault, moment, dice, what)
            except Exception as error:
                error.add_note(f"{what}\n{net.group.text()}")
                raise
