"""A worker of real processes answers as its model does."""

import asyncio

import grpc
import grpc.aio
import pytest
from support.models.checkpoints import EOS, successor_checkpoint
from support.patience import PATIENCE_S
from support.worker.worker import RouterClient, WorkerProcess, client, serving, until

from octavo.proto.v1 import engine_pb2, engine_pb2_grpc, group_pb2
from octavo.worker.channel import OPTIONS


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return successor_checkpoint(tmp_path_factory.mktemp("model") / "scripted", ["#", "hello", "there", EOS])


@pytest.fixture(scope="module")
def worker(model):
    one = WorkerProcess(model).start()
    try:
        asyncio.run(one.ready())
        yield one
    finally:
        one.close()


HELLO, THERE = 300, 301


async def test_a_completion_through_serve_gives_the_scripted_tokens(worker):
    async with client(worker) as router:
        assert router.welcome.context_length == 2048
        letters = await router.submit([ord("c")], 5)
        scripted = await router.submit([ord("a"), ord("#")], 50)
        await asyncio.wait_for(asyncio.gather(letters.done.wait(), scripted.done.wait()), PATIENCE_S)
        assert letters.ids == [ord(letter) for letter in "defgh"]
        assert letters.finish == engine_pb2.LENGTH
        assert scripted.ids == [HELLO, THERE]
        assert scripted.finish == engine_pb2.STOP


async def test_bad_submits_are_rejected_by_field_and_disturb_no_other_request(worker):
    async with client(worker) as router:
        beside = await router.submit([ord("a")], 400)
        bad = {
            "prompt": [await router.submit([], 5), await router.submit([512], 5), await router.submit([1] * 2048, 5)],
            "max_tokens": [await router.submit([1], 0)],
            "temperature": [
                await router.submit([1], 5, temperature=-1.0),
                await router.submit([1], 5, temperature=float("nan")),
            ],
            "top_p": [await router.submit([1], 5, top_p=1.5)],
        }
        for field, answers in bad.items():
            for answer in answers:
                await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
                assert answer.rejected is not None, field
                assert answer.rejected.code == engine_pb2.Rejected.INVALID
                assert answer.rejected.field == field
                assert answer.rejected.message
        await asyncio.wait_for(beside.done.wait(), PATIENCE_S)
        assert len(beside.ids) == 400


async def test_files_come_whole_with_the_digest_of_the_welcome(worker, model):
    async with client(worker) as router:
        async with grpc.aio.insecure_channel(worker.addresses["serve"], options=OPTIONS) as channel:
            files: dict[str, bytes] = {}
            async for chunk in engine_pb2_grpc.EngineStub(channel).Files(engine_pb2.FilesRequest(), timeout=PATIENCE_S):
                files[chunk.name] = files.get(chunk.name, b"") + chunk.data
                assert chunk.digest == router.welcome.digest == (await worker.status()).model.digest
        assert set(files) >= {"tokenizer.json", "chat_template.jinja", "config.json", "generation_config.json"}
        for name, data in files.items():
            assert data == (model / name).read_bytes()


async def test_a_router_of_another_service_is_refused(model):
    async with serving(model, "--service-uid", "ours") as worker:
        stranger = RouterClient(worker.addresses["serve"], uid="theirs")
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            try:
                await stranger.open()
            finally:
                await stranger.close()
        assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "theirs" in (refusal.value.details() or "")


async def test_an_idle_group_is_watched_by_empty_steps_and_says_it_serves(worker):
    before = worker.metric("octavo_worker_steps_total")
    await until(lambda: worker.metric("octavo_worker_steps_total") >= before + 2)
    status = await worker.status()
    assert status.phase == group_pb2.SERVING
    assert status.model.architecture == "LlamaForCausalLM"
    assert status.model.context_length == 2048
    assert status.incarnation
    assert [worker.get("health", page)[0] for page in ("/livez", "/readyz", "/startupz")] == [200, 200, 200]


async def test_every_router_gets_its_credit_again_and_again(worker):
    async with client(worker) as router:
        answer = await router.submit([ord("a")] * 20, 4)
        await asyncio.wait_for(answer.done.wait(), PATIENCE_S)
        assert router.credit.seen == 1
        assert router.credit.tokens > 0
        assert router.credit.load.total_blocks > 0
