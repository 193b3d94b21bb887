"""What a request costs its tenant, and when it counts as the cause of a lost group; leaders do what a test says."""

from collections import Counter
from pathlib import Path

from support.router.fake_leader import FakeLeader, Script, serving
from support.router.jobs import Recorder, job, until

from octavo.router.dispatch.assembly import FleetSettings, running
from octavo.router.dispatch.dispatch import FleetDispatcher
from octavo.router.dispatch.in_flight import InFlightJob
from octavo.router.dispatch.retry import MAX_LOST_INCARNATIONS
from octavo.router.internal_errors import InternalErrors
from octavo.router.jobs.generation import LENGTH, NOT_FINISHED

ONE_AT_A_TIME = Script(slots=1)


async def test_groups_that_end_as_they_said_they_would_are_not_blamed_on_their_requests(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/a"
    async with running(FleetSettings(groups=(address,))) as router:
        sink = Recorder()
        router.submit(job(), sink)
        for _ in range(MAX_LOST_INCARNATIONS):
            async with serving(Script(), address, holding=True) as leader:
                await until(lambda leader=leader: len(leader.submits) == 1)  # type: ignore[misc]  # bound at once
                leader.drain()
                await until(lambda: not router.ready)
        async with serving(Script(), address):
            await sink.end()
        assert (sink.errors, len(sink.ids)) == ([], 5)
        assert (router.counts.poisoned, router.counts.retried) == (0, MAX_LOST_INCARNATIONS)


def test_a_job_that_begins_again_has_produced_what_the_second_attempt_gave() -> None:
    one = InFlightJob(job(), Recorder(restartable=True), [], InternalErrors())
    one.deliver((1, 2, 3), NOT_FINISHED, 0)
    assert one.can_restart() and one.produced == 0
    one.deliver((1, 2), LENGTH, 0)
    assert one.produced == 2


def test_a_job_of_which_a_client_has_seen_something_cannot_begin_again() -> None:
    one = InFlightJob(job(), Recorder(), [], InternalErrors())
    assert one.can_restart()
    one.deliver((1,), NOT_FINISHED, 0)
    assert not one.can_restart() and one.produced == 1


def _submit(router: FleetDispatcher, tenant: str, prompt_tokens: int, max_tokens: int, count: int) -> list[Recorder]:
    sinks = [Recorder() for _ in range(count)]
    for sink in sinks:
        router.submit(job(prompt_tokens, max_tokens, tenant=tenant), sink)
    return sinks


def _first_half(leader: FakeLeader) -> Counter[int]:
    """Of all requests that were sent, the first 30: how many have a prompt of each number of tokens."""
    assert len(leader.submits) == 60
    return Counter(len(submit.prompt) // 4 for submit in leader.submits[:30])


async def test_tenants_pay_for_what_their_requests_generated(tmp_path: Path) -> None:
    """Equal tokens, equal turns: one tenant's are of long answers, the other's of long prompts."""
    async with serving(ONE_AT_A_TIME, f"unix:{tmp_path}/a") as leader:
        async with running(FleetSettings(groups=(f"unix:{tmp_path}/a",))) as router:
            await until(lambda: router.ready)
            leader.holding = True
            sinks = _submit(router, "a", 10, 200, 30) + _submit(router, "b", 408, 1, 30)
            leader.resume()
            for sink in sinks:
                await sink.end()
        assert 12 <= _first_half(leader)[10] <= 18


async def test_a_request_that_was_never_sent_gives_nothing_back(tmp_path: Path) -> None:
    async with serving(ONE_AT_A_TIME, f"unix:{tmp_path}/a") as leader:
        async with running(FleetSettings(groups=(f"unix:{tmp_path}/a",))) as router:
            await until(lambda: router.ready)
            leader.holding = True
            sinks = _submit(router, "a", 400, 5, 30) + _submit(router, "b", 401, 5, 30)
            for _ in range(20):
                router.submit(job(10, 8000, tenant="a"), Recorder()).cancel()
            leader.resume()
            for sink in sinks:
                await sink.end()
        assert 12 <= _first_half(leader)[400] <= 18
