"""Routers and leaders over real gRPC: credit, order, refusals, drains and changes of the list of groups."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.router.fake_leader import Script, serving
from support.router.jobs import Recorder, job, until

from octavo.proto.v1 import engine_pb2
from octavo.router.dispatch.assembly import FleetSettings, running
from octavo.router.dispatch.rules.admission import QueueLimits
from octavo.router.jobs.generation import GRAMMAR, LENGTH, ModelChanged, RequestError
from octavo.shared.sampling_params import SamplingParams


@pytest.fixture
def sockets() -> Iterator[Path]:
    with TemporaryDirectory(prefix="octavo-") as folder:  # short: a socket's path is bounded
        yield Path(folder)


async def test_a_job_gets_its_tokens_and_its_end(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with serving(Script(), address), running(FleetSettings(groups=(address,))) as router:
        sink = Recorder()
        router.submit(job(max_tokens=5), sink)
        await sink.end()
        assert (sink.ids, sink.finish, sink.errors) == ([100, 101, 102, 103, 104], LENGTH, [])
        assert router.under_way == 0


async def test_routers_of_one_leader_do_not_see_each_other(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    settings = FleetSettings(groups=(address,))
    async with serving(Script(), address) as leader, running(settings) as first, running(settings) as second:
        sinks = [Recorder() for _ in range(40)]
        for number, sink in enumerate(sinks):
            (first, second)[number % 2].submit(job(max_tokens=3 + number), sink)
        for number, sink in enumerate(sinks):
            await sink.end()
            assert len(sink.ids) == 3 + number
        assert len(leader.streams) == 2


async def test_nothing_is_sent_without_credit_and_the_head_goes_when_it_comes(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with serving(Script(credit=0), address) as leader, running(FleetSettings(groups=(address,))) as router:
        await until(lambda: router.ready)
        sinks = [Recorder() for _ in range(3)]
        for sink, priority in zip(sinks, (0, 0, 5), strict=True):
            router.submit(job(prompt_tokens=50, priority=priority), sink)
        heard = leader.heard
        router.fleet.usable[0].send_heartbeat()  # behind whatever was sent before it
        await until(lambda: leader.heard > heard)
        assert leader.submits == [] and router.waiting == 3
        leader.grant(1)
        for sink in sinks:
            await sink.end()
        assert [submit.priority for submit in leader.submits] == [5, 0, 0]


async def test_jobs_are_held_until_a_group_is_there(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with running(FleetSettings(groups=(address,))) as router:
        sink = Recorder()
        router.submit(job(), sink)
        await until(lambda: all(upstream.last_error for upstream in router.fleet.upstreams))
        assert not router.ready and not sink.ended and router.waiting == 1
        async with serving(Script(), address):
            await sink.end()
            assert sink.finish == LENGTH
            assert router.ready


async def test_a_job_that_no_group_takes_in_time_gets_503(sockets: Path) -> None:
    settings = FleetSettings(groups=(f"unix:{sockets}/absent",), bounds=QueueLimits(10, 0.2))
    async with running(settings) as router:
        sink = Recorder()
        router.submit(job(), sink)
        await sink.end()
        assert (sink.error.status, sink.error.code) == (503, "no_capacity")
        assert sink.error.retry_after is not None and sink.error.retry_after >= 1
        with pytest.raises(RequestError) as refused:
            await router.model(time.monotonic() + 0.2)
        assert refused.value.code == "no_capacity"


async def test_a_jobs_own_deadline_ends_its_wait(sockets: Path) -> None:
    async with running(FleetSettings(groups=(f"unix:{sockets}/absent",))) as router:
        patient, hasty = Recorder(), Recorder()
        router.submit(job(), patient)
        router.submit(job(deadline=time.monotonic() + 0.2), hasty)
        await hasty.end()
        assert hasty.error.code == "deadline_exceeded"
        assert not patient.ended


async def test_a_full_queue_refuses_with_429(sockets: Path) -> None:
    settings = FleetSettings(groups=(f"unix:{sockets}/absent",), bounds=QueueLimits(2, 60))
    async with running(settings) as router:
        router.submit(job(), Recorder())
        handle = router.submit(job(), Recorder())
        with pytest.raises(RequestError) as refused:
            router.submit(job(), Recorder())
        assert (refused.value.status, refused.value.code) == (429, "queue_full")
        handle.cancel()
        router.submit(job(), Recorder())


async def test_a_cancelled_job_is_cancelled_at_its_leader_and_silent_from_then_on(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    script = Script(interval_s=0.01)
    async with serving(script, address) as leader, running(FleetSettings(groups=(address,))) as router:
        sink = Recorder()
        handle = router.submit(job(max_tokens=100_000), sink)
        await sink.begun()
        handle.cancel()
        handle.cancel()
        shown = len(sink.ids)
        await until(lambda: leader.under_way == 0)
        assert leader.cancels == [1]
        assert len(sink.ids) == shown and not sink.ended
        assert router.counts.cancelled == 1


async def test_a_reader_that_raises_ends_its_own_job_only(sockets: Path) -> None:
    class Broken(Recorder):
        def tokens(self, ids: object, finish: int, cached: int) -> None:
            raise RuntimeError("planted")

    address = f"unix:{sockets}/a"
    async with serving(Script(), address) as leader, running(FleetSettings(groups=(address,))) as router:
        broken, sound = Broken(), Recorder()
        router.submit(job(max_tokens=1000), broken)
        router.submit(job(max_tokens=50), sound)
        await sound.end()
        assert len(sound.ids) == 50
        assert broken.error.code == "internal_error"
        await until(lambda: leader.under_way == 0)


async def test_what_the_engine_calls_invalid_is_400_with_its_field(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with serving(Script(), address) as leader, running(FleetSettings(groups=(address,))) as router:
        leader.refuse = engine_pb2.Rejected(code=engine_pb2.Rejected.INVALID, field="max_tokens", message="too many")
        sink = Recorder()
        router.submit(job(), sink)
        await sink.end()
        assert (sink.error.status, sink.error.field, sink.error.message) == (400, "max_tokens", "too many")
        assert len(leader.submits) == 1


async def test_what_one_group_cannot_take_goes_to_another(sockets: Path) -> None:
    addresses = (f"unix:{sockets}/a", f"unix:{sockets}/b")
    async with serving(Script(), addresses[0]) as first, serving(Script(), addresses[1]) as second:
        first.refuse = second.refuse = engine_pb2.Rejected(code=engine_pb2.Rejected.UNAVAILABLE)
        async with running(FleetSettings(groups=addresses)) as router:
            await until(lambda: len(router.fleet.usable) == 2)
            hopeless = Recorder()
            router.submit(job(), hopeless)
            await hopeless.end()
            assert hopeless.error.code == "retries_exhausted"
            assert len(first.submits) == len(second.submits) == 2
            second.refuse = None
            sinks = [Recorder() for _ in range(10)]
            for sink in sinks:
                router.submit(job(), sink)
            for sink in sinks:
                await sink.end()
                assert sink.finish == LENGTH


async def test_a_request_the_engine_gives_up_is_an_error_not_a_stop(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with serving(Script(), address) as leader, running(FleetSettings(groups=(address,))) as router:
        leader.fail_at = 3
        sink = Recorder()
        router.submit(job(max_tokens=10), sink)
        await sink.end()
        assert (sink.finish, len(sink.ids), sink.error.code) == (0, 3, "engine_failed")


async def test_a_draining_leader_gets_nothing_new_and_finishes_what_it_has(sockets: Path) -> None:
    addresses = (f"unix:{sockets}/a", f"unix:{sockets}/b")
    script = Script(interval_s=0.01)
    async with serving(script, addresses[0]) as first, serving(script, addresses[1]) as second:
        async with running(FleetSettings(groups=addresses)) as router:
            await until(lambda: len(router.fleet.usable) == 2)
            early = [Recorder() for _ in range(4)]
            for sink in early:
                router.submit(job(max_tokens=60), sink)
            await until(lambda: len(first.submits) + len(second.submits) == 4)
            assert first.submits and second.submits
            first.drain()
            await until(lambda: len(router.fleet.usable) == 1)
            had = len(first.submits)
            late = [Recorder() for _ in range(6)]
            for sink in late:
                router.submit(job(max_tokens=5), sink)
            for sink in early + late:
                await sink.end()
                assert sink.errors == []
            assert len(first.submits) == had


async def test_a_group_that_left_the_list_finishes_what_it_has_and_its_stream_closes(sockets: Path) -> None:
    addresses = (f"unix:{sockets}/a", f"unix:{sockets}/b")
    async with serving(Script(interval_s=0.01), addresses[0]) as first, serving(Script(), addresses[1]) as second:
        async with running(FleetSettings(groups=addresses[:1])) as router:
            sink = Recorder()
            router.submit(job(max_tokens=50), sink)
            await sink.begun()
            router.retarget(addresses[1:])
            await until(lambda: router.ready)
            other = Recorder()
            router.submit(job(), other)
            await other.end()
            assert len(second.submits) == 1
            assert len(first.streams) == 1
            await sink.end()
            assert (sink.finish, len(sink.ids)) == (LENGTH, 50)
            await until(lambda: not first.streams)


async def test_a_group_that_flaps_keeps_its_stream(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with serving(Script(interval_s=0.01), address) as leader, running(FleetSettings(groups=(address,))) as router:
        sink = Recorder()
        router.submit(job(max_tokens=50), sink)
        await sink.begun()
        router.retarget(())
        assert not router.ready
        router.retarget((address,))
        assert router.ready
        await sink.end()
        assert len(leader.streams) == 1 and sink.errors == []


async def test_the_tokenizers_files_come_from_a_leader(sockets: Path, tmp_path: Path) -> None:
    big = b"x" * (5 << 20)
    (tmp_path / "tokenizer.json").write_bytes(big)
    (tmp_path / "generation_config.json").write_bytes(b"{}")
    address = f"unix:{sockets}/a"
    async with serving(Script(tokenizer=tmp_path), address), running(FleetSettings(groups=(address,))) as router:
        assert not router.models
        served = await router.model(time.monotonic() + 10)
        assert served.model.files == {"tokenizer.json": big, "generation_config.json": b"{}"}
        assert (served.name, served.context_length, served.groups) == ("fake", 8192, 1)


async def test_each_model_gets_the_jobs_that_were_tokenised_for_it_for_as_long_as_a_group_serves_it(
    sockets: Path,
) -> None:
    old, new = f"unix:{sockets}/a", f"unix:{sockets}/b"
    changed = Script(digest="model-b", revision="revision-2")
    async with serving(Script(), old) as first, serving(changed, new) as second:
        async with running(FleetSettings(groups=(old, new))) as router:
            await until(lambda: len(router.models) == 2)
            for digest in ("model-a", "model-b", "model-a", "model-b"):
                sink = Recorder()
                router.submit(job(digest=digest), sink)
                await sink.end()
                assert sink.errors == []
            assert len(first.submits) == len(second.submits) == 2
            router.retarget((new,))
            assert [served.digest for served in router.models] == ["model-b"]
            stale, fresh = Recorder(), Recorder()
            router.submit(job(digest="model-a"), stale)
            router.submit(job(digest="model-b"), fresh)
            await fresh.end()
            assert isinstance(stale.error, ModelChanged)
            assert fresh.finish == LENGTH


async def test_jobs_for_a_model_without_room_hold_up_no_others(sockets: Path) -> None:
    full, free = f"unix:{sockets}/a", f"unix:{sockets}/b"
    changed = Script(digest="model-b", revision="revision-2")
    async with serving(Script(credit=0), full), serving(changed, free):
        async with running(FleetSettings(groups=(full, free))) as router:
            await until(lambda: len(router.models) == 2)
            waiting, sent = Recorder(), Recorder()
            router.submit(job(digest="model-a"), waiting)
            router.submit(job(digest="model-b"), sent)
            await sent.end()
            assert sent.finish == LENGTH and not waiting.ended and router.waiting == 1
            chosen = [router.choose(("model-a", "model-b")) for _ in range(4)]
            assert {one.digest for one in chosen if one is not None} == {"model-b"}


async def test_a_group_whose_weights_are_not_its_revisions_carries_nothing(
    sockets: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files were changed in place: one name must not have two answers at random."""
    addresses = [f"unix:{sockets}/{name}" for name in "abc"]
    async with serving(Script(), addresses[0]), serving(Script(), addresses[1]):
        async with serving(Script(digest="fine-tune"), addresses[2]) as other:
            async with running(FleetSettings(groups=tuple(addresses[:2]))) as router:
                await until(lambda: len(router.fleet.usable) == 2)
                router.retarget(addresses)
                await until(lambda: bool(router.fleet.mismatched))
                assert router.fleet.mismatched == {addresses[2]}
                assert [served.digest for served in router.models] == ["model-a"] and other.submits == []
                errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
                assert len(errors) == 1 and "fine-tune" in errors[0] and addresses[2] in errors[0]
                router.retarget(addresses[2:])
                await until(lambda: [served.digest for served in router.models] == ["fine-tune"])
                assert not router.fleet.mismatched


async def test_what_groups_say_of_themselves_holds_for_their_streams(sockets: Path) -> None:
    """Groups of one model may differ in context, in what their devices can do, and in the model's name."""
    small, large = f"unix:{sockets}/a", f"unix:{sockets}/b"
    longer = Script(context_length=32_768, revision="revision-2", served_name="new", features=())
    async with serving(Script(), small) as first, serving(longer, large) as second:
        async with running(FleetSettings(groups=(small, large))) as router:
            await until(lambda: len(router.fleet.usable) == 2)
            (served,) = router.models
            assert (set(served.names), served.context_length, served.groups) == ({"fake", "new"}, 32_768, 2)
            for fields in ({"min_context": 9000}, {"needs": frozenset(("min_p",))}):
                for _ in range(3):
                    sink = Recorder()
                    router.submit(job(**fields), sink)
                    await sink.end()
                    assert sink.errors == []
            assert (len(first.submits), len(second.submits)) == (3, 3)
            with pytest.raises(RequestError) as refused:
                router.submit(job(min_context=9000, needs=frozenset(("min_p",))), Recorder())
            assert refused.value.code == "context_length_exceeded"
            router.retarget((small,))
            assert (router.models[0].names, router.models[0].context_length) == (("fake",), 8192)


async def test_a_prompt_of_more_than_a_million_ids_arrives(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with serving(Script(), address) as leader, running(FleetSettings(groups=(address,))) as router:
        sink = Recorder()
        router.submit(job(prompt_tokens=1_200_000, max_tokens=1), sink)
        await sink.end()
        assert sink.finish == LENGTH
        assert len(leader.submits[0].prompt) == 4_800_000
        with pytest.raises(RequestError) as refused:
            router.submit(job(prompt_tokens=17_000_000), Recorder())
        assert (refused.value.status, refused.value.field) == (400, "prompt")


async def test_closing_a_router_tells_everyone_once(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with serving(Script(credit=1, interval_s=0.01), address) as leader:
        async with running(FleetSettings(groups=(address,))) as router:
            begun, queued = Recorder(), Recorder()
            router.submit(job(prompt_tokens=100, max_tokens=1000), begun)
            await begun.begun()
            leader.grant(0)
            await until(lambda: router.fleet.usable[0].ledger.balance <= 0)
            router.submit(job(), queued)
        assert begun.error.code == "stream_cut"
        assert queued.error.code == "draining"
        with pytest.raises(RequestError) as refused:
            router.submit(job(), Recorder())
        assert refused.value.code == "draining"


async def test_another_services_leader_is_not_used(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    settings = FleetSettings(groups=(address,), service_uid="mine")
    async with serving(Script(service_uid="theirs"), address), running(settings) as router:
        await until(lambda: any("another service" in upstream.last_error for upstream in router.fleet.upstreams))
        assert not router.ready


async def test_a_field_that_no_group_can_serve_is_refused_by_name(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with running(FleetSettings(groups=(address,))) as router:
        early = Recorder()
        router.submit(job(needs=frozenset({"min_p"})), early)
        async with serving(Script(features=("logprobs",)), address) as leader:
            await early.end()
            assert (early.error.status, early.error.field) == (400, "min_p")
            with pytest.raises(RequestError) as refused:
                router.submit(job(needs=frozenset({"min_p", "logprobs"})), Recorder())
            assert (refused.value.status, refused.value.field) == (400, "min_p")
            assert refused.value.code == "unsupported_field"
            with pytest.raises(RequestError) as refused:
                router.submit(job(needs=frozenset({GRAMMAR}), grammar="g", grammar_field="tool_choice"), Recorder())
            assert refused.value.field == "tool_choice", "as the client calls what needs a grammar"
            served = Recorder()
            router.submit(job(needs=frozenset({"logprobs"})), served)
            await served.end()
            assert served.finish == LENGTH and len(leader.submits) == 1


async def test_a_request_goes_to_the_group_whose_device_can_serve_it(sockets: Path) -> None:
    poor, rich = f"unix:{sockets}/a", f"unix:{sockets}/b"
    async with serving(Script(features=()), poor) as one, serving(Script(), rich) as other:
        async with running(FleetSettings(groups=(poor, rich))) as router:
            await until(lambda: len(one.streams) == len(other.streams) == 1 and len(router.fleet.usable) == 2)
            sinks = [Recorder() for _ in range(8)]
            for sink in sinks:
                router.submit(job(needs=frozenset({"min_p"})), sink)
            for sink in sinks:
                await sink.end()
                assert not sink.errors
            assert (len(one.submits), len(other.submits)) == (0, 8)


async def test_log_probabilities_reach_the_sink_before_their_tokens(sockets: Path) -> None:
    address = f"unix:{sockets}/a"
    async with serving(Script(), address), running(FleetSettings(groups=(address,))) as router:
        asking, plain = Recorder(), Recorder()
        router.submit(job(max_tokens=3, sampling=SamplingParams(logprobs=0)), asking)
        router.submit(job(max_tokens=3), plain)
        await asking.end()
        await plain.end()
        assert [len(tokens) for tokens, _ in asking.scored] == [12, 12, 12] and not plain.scored
        assert asking.heard_at == [0, 1, 2], "how many ids it had each time"
