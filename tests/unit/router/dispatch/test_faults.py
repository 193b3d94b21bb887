"""Errors of a router's own code: the request that one hits ends, streams are kept, all others are answered."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.router.fake_leader import FakeLeader, Script, serving
from support.router.jobs import Recorder, job, until

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch import dispatch, fleet, wire
from octavo.router.dispatch.assembly import FleetSettings, running
from octavo.router.dispatch.dispatch import FleetDispatcher
from octavo.router.dispatch.rules.admission import QueueLimits
from octavo.router.dispatch.upstream import Upstream
from octavo.router.jobs.generation import LENGTH

OURS = "internal_error"


class Bug(Exception):
    """An error that no code expects."""


def fails(*_: object, **__: object) -> None:
    raise Bug("a bug of the router")


class FailingSink(Recorder):
    """Raises in every call of these names, after it has taken its arguments."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names

    def tokens(self, ids, finish, cached):  # type: ignore[no-untyped-def]
        super().tokens(ids, finish, cached)
        if "tokens" in self._names or (finish and "finish" in self._names):
            fails()

    def failed(self, error):  # type: ignore[no-untyped-def]
        super().failed(error)
        if "failed" in self._names:
            fails()

    def restart(self) -> bool:
        if "restart" in self._names:
            fails()
        return super().restart()


@asynccontextmanager
async def served(groups: int = 1, **bounds: float) -> AsyncIterator[tuple[FleetDispatcher, list[FakeLeader]]]:
    with TemporaryDirectory(prefix="octavo-") as folder:
        addresses = tuple(f"unix:{Path(folder) / str(index)}" for index in range(groups))
        settings = FleetSettings(groups=addresses, bounds=QueueLimits(**bounds))  # type: ignore[arg-type]
        async with running(settings) as router, leading(addresses) as leaders:
            await until(lambda: len(router.fleet.usable) == groups)
            yield router, leaders


@asynccontextmanager
async def leading(addresses: tuple[str, ...]) -> AsyncIterator[list[FakeLeader]]:
    if not addresses:
        yield []
        return
    async with serving(Script(), addresses[0]) as leader, leading(addresses[1:]) as others:
        yield [leader, *others]


def settled(router: FleetDispatcher) -> bool:
    """Nothing is left of any request."""
    in_flight_jobs = sum(len(stream.in_flight_jobs) for stream in router.fleet.usable)
    return (router.waiting, router.under_way, in_flight_jobs) == (0, 0, 0)


async def answered(router: FleetDispatcher) -> None:
    sink = Recorder()
    router.submit(job(), sink)
    await sink.end()
    assert (len(sink.ids), sink.errors) == (5, [])


async def test_requests_that_expire_in_the_queue_cost_no_other_request_and_no_stream() -> None:
    async with served() as (router, (leader,)):
        leader.grant(0)
        await until(lambda: router.fleet.usable[0].ledger.balance == 0)
        loop = asyncio.get_running_loop()
        sinks = [Recorder() for _ in range(60)]
        for index, sink in enumerate(sinks):
            router.submit(job(deadline=loop.time() + (index % 7 - 3) / 2000), sink)
            await asyncio.sleep(0)
        for sink in sinks:
            await sink.end()
        assert {sink.error.code for sink in sinks} == {"deadline_exceeded"}
        leader.grant(100_000)
        await answered(router)
        assert (router.errors.count, len(leader.streams)) == (0, 1) and settled(router)


@pytest.mark.parametrize("where", [(dispatch, "select_group"), (wire, "submit")])
async def test_an_error_in_sending_one_request_ends_that_one_alone(
    monkeypatch: pytest.MonkeyPatch, where: tuple[object, str]
) -> None:
    right: Callable[..., object] = getattr(*where)
    wrong = job()

    def fails_for_one(*given: object) -> object:
        return fails() if any(wrong in (one, getattr(one, "job", None)) for one in given) else right(*given)

    monkeypatch.setattr(*where, fails_for_one)
    async with served() as (router, (leader,)):
        leader.grant(0)
        await until(lambda: router.fleet.usable[0].ledger.balance == 0)
        bad, good = Recorder(), Recorder()
        router.submit(wrong, bad)
        router.submit(job(), good)
        leader.grant(100_000)
        await bad.end()
        await good.end()
        assert (bad.error.code, len(good.ids), good.errors) == (OURS, 5, [])
        await until(lambda: settled(router))
        assert len(leader.streams) == 1


async def test_an_error_of_the_queue_is_no_requests_fault_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "RETRY_S", 0.01)
    async with served() as (router, (leader,)):
        with monkeypatch.context() as broken:
            broken.setattr(router._queues.of(Script().digest), "head", fails)
            sink = Recorder()
            router.submit(job(), sink)
            assert router.errors.count == 1
        await sink.end()
        assert sink.errors == [] and len(leader.streams) == 1


@pytest.mark.parametrize("event", ["credited", "on_finished", "draining", "rejected", "lost", "opened"])
async def test_whatever_a_listener_raises_the_stream_is_kept_or_opened_again(
    monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    with TemporaryDirectory(prefix="octavo-") as folder:
        address = f"unix:{folder}/a"
        async with running(FleetSettings(groups=(address,))) as router:
            with monkeypatch.context() as broken:
                broken.setattr(FleetDispatcher, event, fails)
                async with serving(Script(), address) as leader:
                    if event == "opened":
                        await until(lambda: router.errors.count > 1)
                    else:
                        await until(lambda: bool(router.fleet.usable) and router.fleet.usable[0].ledger.balance > 0)
                        if event == "rejected":
                            leader.refuse = engine_pb2.Rejected(code=engine_pb2.Rejected.INVALID)
                        router.submit(job(), Recorder())
                        await until(lambda: bool(leader.submits))
                        if event == "draining":
                            leader.drain()
                        if event != "lost":
                            await until(lambda: router.errors.count > 0)
                await until(lambda: router.errors.count > 0)
            async with serving(Script(), address):
                await until(lambda: bool(router.fleet.usable) and router.fleet.usable[0].ledger.balance > 0)
                await answered(router)


@pytest.mark.parametrize("names", [("tokens",), ("finish",), ("finish", "failed"), ("tokens", "failed")])
async def test_a_sink_that_raises_fails_its_own_request_only(names: tuple[str, ...]) -> None:
    async with served() as (router, (leader,)):
        bad, good = FailingSink(*names), Recorder()
        router.submit(job(), bad)
        router.submit(job(), good)
        await bad.end()
        await good.end()
        await until(lambda: settled(router))
        assert [error.code for error in bad.errors] == [OURS] and (len(good.ids), good.errors) == (5, [])
        assert router.errors.count == len(names) and len(leader.streams) == 1


async def test_each_request_of_a_lost_stream_goes_on_or_fails_though_one_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(2) as (router, (dying, sound)):
        dying.holding = sound.holding = True
        sinks = [Recorder() for _ in range(8)]
        jobs = [job() for _ in sinks]
        for one, sink in zip(jobs, sinks, strict=True):
            router.submit(one, sink)
        await until(lambda: len(dying.submits) + len(sound.submits) == 8)
        right, raised = dispatch.error_of_lost_stream, []

        def once(in_flight, *rest):  # type: ignore[no-untyped-def]
            if not raised:
                raised.append(in_flight.job)
                fails()
            return right(in_flight, *rest)

        monkeypatch.setattr(dispatch, "error_of_lost_stream", once)
        for one in list(dying.streams):
            one.post(engine_pb2.FromEngine(output=engine_pb2.StepOutput(numbers=b"odd")))
        await until(lambda: bool(raised))
        dying.resume()
        sound.resume()
        for one, sink in zip(jobs, sinks, strict=True):
            await sink.end()
            assert [error.code for error in sink.errors] == ([OURS] if one is raised[0] else [])
        await until(lambda: settled(router) and len(router.fleet.usable) == 2)


async def test_a_keeper_that_has_ended_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "RESTART_S", 0.01)
    async with served() as (router, _):
        for task in list(router.fleet._tasks.values()):
            task.cancel()
        await until(lambda: not router.fleet.usable)
        assert list(router.reachability.missing) == list(router.fleet._tasks)
        await until(lambda: bool(router.fleet.usable) and router.fleet.usable[0].ledger.balance > 0)
        assert router.reachability.missing == {}
        await answered(router)


@pytest.mark.parametrize("side", ["_write", "_watch"])
async def test_a_stream_of_which_one_side_fails_is_opened_again(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    async def fails_once(*_: object) -> None:
        monkeypatch.undo()
        fails()

    monkeypatch.setattr(Upstream, side, fails_once)
    async with served() as (router, _):
        await until(lambda: router.errors.count == 1)
        await until(lambda: bool(router.fleet.usable) and router.fleet.usable[0].ledger.balance > 0)
        await answered(router)


@pytest.mark.parametrize("seed", range(4))
async def test_errors_at_random_cost_only_the_requests_that_they_hit(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Of 200 requests, with readers and steps that raise now and then: each ends once, and right or as our fault."""
    chance = random.Random(seed)

    def sometimes(right: Callable[..., object]) -> Callable[..., object]:
        return lambda *given: fails() if chance.random() < 0.03 else right(*given)

    async with served(2) as (router, leaders):
        with monkeypatch.context() as broken:
            steps = (dispatch, "select_group"), (wire, "submit"), (dispatch, "cost"), (FleetDispatcher, "credited")
            for owner, name in steps:
                broken.setattr(owner, name, sometimes(getattr(owner, name)))
            good = [Recorder() for _ in range(160)]
            bad = [FailingSink(chance.choice(("tokens", "finish", "failed", "restart"))) for _ in range(40)]
            sinks = [*good, *bad]
            chance.shuffle(sinks)
            for sink in sinks:
                try:
                    handle = router.submit(job(max_tokens=chance.randint(1, 9)), sink)
                except Bug:
                    sink.ended = 1
                    continue
                if chance.random() < 0.1:
                    handle.cancel()
                    sink.ended = 1
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            for sink in sinks:
                await sink.end()
        await until(lambda: settled(router))
        assert {sink.ended for sink in good} == {1} and any(sink.finish == LENGTH for sink in good)
        assert {error.code for sink in sinks for error in sink.errors} <= {OURS}
        assert router.errors.count > 0 and [len(leader.streams) for leader in leaders] == [1, 1]
        await answered(router)
