"""Leaders die, fall silent and come back: nothing that has not begun is lost, and nothing is sent twice."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.processes.ports import free_port
from support.router.fake_leader import FakeLeader, Script, listening, serving
from support.router.jobs import Recorder, job, until
from support.router.leader_process import LeaderProcess

from octavo.router.dispatch.assembly import FleetSettings, running
from octavo.router.dispatch.upstream import FIRST_BACK_OFF_S, MAX_BACK_OFF_S, Upstream
from octavo.router.jobs.generation import LENGTH, Model

FOUND_S = 5.0  # twice the longest back-off, and a start


@pytest.fixture
def sockets() -> Iterator[Path]:
    with TemporaryDirectory(prefix="octavo-") as folder:
        yield Path(folder)


async def test_what_had_not_begun_at_a_dead_leader_is_done_by_another(sockets: Path) -> None:
    addresses = (f"unix:{sockets}/a", f"unix:{sockets}/b")
    async with serving(Script(), addresses[1]) as sound, running(FleetSettings(groups=addresses)) as router:
        async with serving(Script(), addresses[0], holding=True) as dying:
            await until(lambda: len(router.fleet.usable) == 2)
            sound.grant(0)
            await until(lambda: sum(stream.ledger.balance > 0 for stream in router.fleet.usable) == 1)
            sinks = [Recorder() for _ in range(20)]
            for sink in sinks:
                router.submit(job(max_tokens=7), sink)
            await until(lambda: len(dying.submits) == 20)
        sound.grant(100_000)
        for sink in sinks:
            await sink.end()
            assert (len(sink.ids), sink.finish, sink.errors) == (7, LENGTH, [])
        assert [s.number for s in sound.submits] == list(range(1, 21))
        assert router.counts.retried == 20


async def test_retried_jobs_keep_their_order(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with running(FleetSettings(groups=(address,))) as router:
        async with serving(Script(), address, holding=True) as dying:
            for count in range(1, 9):
                router.submit(job(prompt_tokens=count), Recorder())
            await until(lambda: len(dying.submits) == 8)
        async with serving(Script(), address) as sound:
            await until(lambda: len(sound.submits) == 8)
            assert [len(submit.prompt) // 4 for submit in sound.submits] == list(range(1, 9))


async def test_streams_cut_by_a_killed_leader_end_with_one_error_and_no_stop(sockets: Path) -> None:
    addresses = (f"unix:{sockets}/a", f"unix:{sockets}/b")
    flags = ("--interval", "0.02")
    async with LeaderProcess(addresses[0], *flags) as victim, LeaderProcess(addresses[1], *flags):
        async with running(FleetSettings(groups=addresses)) as router:
            await until(lambda: len(router.fleet.usable) == 2)
            sinks = [Recorder() for _ in range(20)]
            for sink in sinks:
                router.submit(job(prompt_tokens=40, max_tokens=150), sink)
            for sink in sinks:
                await sink.begun()
            await victim.kill()
            await until(lambda: any(sink.errors for sink in sinks), 2)
            for sink in sinks:
                await sink.end()
            cut = [sink for sink in sinks if sink.errors]
            whole = [sink for sink in sinks if not sink.errors]
            assert cut and whole
            assert all(sink.ended == 1 and sink.error.code == "stream_cut" and sink.finish == 0 for sink in cut)
            assert all(sink.ended == 1 and sink.finish == LENGTH and len(sink.ids) == 150 for sink in whole)
            assert router.counts.cut == len(cut)


async def test_an_answer_of_which_the_client_has_seen_nothing_is_begun_again(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with running(FleetSettings(groups=(address,))) as router:
        async with serving(Script(interval_s=0.2), address):
            sink = Recorder(restartable=True)
            router.submit(job(max_tokens=50), sink)
            await sink.begun()
        async with serving(Script(), address):
            await sink.end()
            assert (sink.ids, sink.finish, sink.restarts) == (list(range(100, 150)), LENGTH, 1)


async def test_a_request_under_way_at_two_lost_incarnations_is_not_tried_again(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with running(FleetSettings(groups=(address,))) as router:
        poison, later = Recorder(), Recorder()
        router.submit(job(), poison)
        for _ in range(2):
            async with serving(Script(), address, holding=True) as leader:
                await until(lambda leader=leader: len(leader.submits) == 1)
        await poison.end()
        assert (poison.error.status, poison.error.code) == (500, "engine_lost_twice")
        async with serving(Script(), address) as sound:
            router.submit(job(), later)
            await later.end()
            assert later.finish == LENGTH and len(sound.submits) == 1
        assert router.counts.poisoned == 1


async def test_a_leader_that_comes_back_at_its_address_is_found_within_seconds() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with running(FleetSettings(groups=(address,))) as router:
        for _ in range(5):
            async with serving(Script(), address):
                await until(lambda: router.ready, FOUND_S)
                sink = Recorder()
                router.submit(job(), sink)
                await sink.end()
                assert sink.finish == LENGTH
            await until(lambda: not router.ready)


async def test_a_leader_absent_for_long_is_still_found_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, attempt = [], Upstream._attempt

    async def counted(upstream: Upstream, known: Callable[[str], Model | None]) -> None:
        attempts.append(upstream.address)
        await attempt(upstream, known)

    monkeypatch.setattr(Upstream, "_attempt", counted)
    address = f"127.0.0.1:{free_port()}"
    async with running(FleetSettings(groups=(address,))) as router:
        await until(lambda: FIRST_BACK_OFF_S * 2 ** len(attempts) > 2 * MAX_BACK_OFF_S)
        async with serving(Script(), address):
            await until(lambda: router.ready, FOUND_S)


async def test_a_silent_leader_is_given_up_and_its_work_done_elsewhere(sockets: Path) -> None:
    addresses = (f"unix:{sockets}/a", f"unix:{sockets}/b")
    async with LeaderProcess(addresses[0], "--interval", "0.5") as stopped:
        async with running(FleetSettings(groups=addresses)) as router:
            await until(lambda: router.ready)
            stopped.signal(signal.SIGSTOP)
            sink = Recorder()
            router.submit(job(max_tokens=3), sink)
            async with serving(Script(), addresses[1]):
                await sink.end()
                assert (sink.finish, len(sink.ids), sink.errors) == (LENGTH, 3, [])
            stopped.signal(signal.SIGCONT)


async def test_a_terminated_leader_finishes_its_streams(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with LeaderProcess(address, "--interval", "0.02") as leader:
        async with running(FleetSettings(groups=(address,))) as router:
            sinks = [Recorder() for _ in range(10)]
            for sink in sinks:
                router.submit(job(max_tokens=60), sink)
            for sink in sinks:
                await sink.begun()
            leader.signal(signal.SIGTERM)
            for sink in sinks:
                await sink.end()
                assert (sink.finish, len(sink.ids), sink.errors) == (LENGTH, 60, [])
            assert await leader.wait() == 0


async def test_a_leader_that_talks_nonsense_is_dropped_and_its_job_taken_elsewhere(sockets: Path) -> None:
    class Nonsense(FakeLeader):
        def _step(self, stream):  # type: ignore[no-untyped-def]
            output = super()._step(stream)
            output.ids += b"\0"
            return output

    addresses = (f"unix:{sockets}/a", f"unix:{sockets}/b")
    async with running(FleetSettings(groups=addresses)) as router:
        async with listening(Nonsense(Script()), addresses[0]):
            await until(lambda: router.ready)
            sink = Recorder()
            router.submit(job(), sink)
            await until(lambda: router.counts.retried > 0)
        async with serving(Script(), addresses[1]):
            await sink.end()
            assert sink.ended == 1 and (sink.finish == LENGTH or sink.error.code == "engine_lost_twice")
