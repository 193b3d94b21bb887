"""`octavo run`: one command serves a model on one machine, and ends at a signal."""

import asyncio
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.bed import wait_until
from support.models.checkpoints import successor_checkpoint
from support.processes import without_kernels
from support.processes.commands import done
from support.processes.local import LocalRun, complete, local_run, many
from support.processes.ports import free_port
from support.processes.process_table import is_running
from support.router.grpc_calls import calling, message_of
from support.router.jobs import until

from octavo.shared.failure_reasons import FailureReason

ALPHABET = "bcdefghi"
KEY = "sk-as-a-flag"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return successor_checkpoint(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def from_file(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRun]:
    """A resource that is served with flags beside it, one of which says otherwise; every process has an interpreter of
    its own, as a user's. The last test ends it."""
    file = tmp_path_factory.mktemp("resource") / "service.yaml"
    file.write_text(
        "apiVersion: octavo.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: local}\n"
        f"spec: {{model: {{uri: 'file://{model}', servedName: from-file}}, engine: {{kvCacheMemory: 32Mi}}}}\n"
    )
    flags = ("--served-name", "from-flag", "--prompt", "hello", "--grpc-port", "0")
    with local_run("-f", file, *flags, forked=False) as run:
        run.until_serving()
        yield run


@pytest.fixture(scope="module")
def guarded(model: Path) -> Iterator[LocalRun]:
    """Two groups and two router processes that ask for a key. The last test ends it."""
    many_processes = ("--replicas", "2", "--router-processes", "2", "--max-requests", "4")
    with local_run(model, *many_processes, "--prompt", "hello", "--api-key", KEY, "--strict") as run:
        run.until_serving()
        yield run


async def test_a_resource_from_a_file_is_served_and_flags_win(from_file: LocalRun) -> None:
    assert (await complete(from_file.url, model="from-flag"))[0] == 200
    assert (await complete(from_file.url, model="from-file"))[0] == 404


async def test_with_a_grpc_port_it_prints_and_serves_that_too(from_file: LocalRun) -> None:
    found = re.search(r"gRPC \(octavo\.v1\.Inference\) at (\S+)", from_file.text)
    assert found is not None, from_file.text
    async with calling(found[1]) as stub:
        answer = await stub.Generate(message_of({"prompt": "a", "temperature": 0, "max_tokens": 8}))
    assert answer.outputs[0].text == ALPHABET


async def test_it_prints_the_url_answers_the_prompt_serves_and_ends_at_an_interrupt(from_file: LocalRun) -> None:
    run = from_file
    status, body = await complete(run.url, model="from-flag")
    assert status == 200 and body["choices"][0]["text"] == ALPHABET, body  # type: ignore[index]
    assert "curl " in run.text and "> hello" in run.text
    run.process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(run.end) == 0, run.text


async def test_a_key_is_asked_of_clients_and_never_shown(guarded: LocalRun) -> None:
    run, url = guarded, guarded.url
    assert (await complete(url))[0] == 401
    assert (await complete(url, key=KEY))[0] == 200
    assert (await complete(url, key=KEY, foo=1))[0] == 400
    await asyncio.to_thread(wait_until, lambda: ALPHABET in run.text, 20, "it asks with the key itself")
    assert KEY not in run.text
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(run.process.pid)]
    assert lines and not any(KEY.encode() in line for line in lines)


async def test_two_groups_and_two_router_processes_share_one_port(guarded: LocalRun) -> None:
    answers = await many(guarded.url, 24, key=KEY)
    assert {status for status, _ in answers} == {200}
    assert {body["choices"][0]["text"] for _, body in answers} == {ALPHABET}  # type: ignore[index]


async def test_an_interrupt_finishes_what_is_under_way(guarded: LocalRun) -> None:
    answers = asyncio.create_task(many(guarded.url, 5, key=KEY, max_tokens=400))
    await asyncio.sleep(0.5)
    guarded.process.send_signal(signal.SIGINT)
    assert [status for status, _ in await answers] == [200] * 5
    assert await asyncio.to_thread(guarded.end) == 0, guarded.text


async def test_nothing_outlives_it_when_it_is_killed(model: Path) -> None:
    with local_run(model, "--kv-cache-memory", "16Mi") as run:
        await until(lambda: {"worker", "router"} <= commands_of(children(run.process.pid)))
        started = children(run.process.pid)
        run.process.kill()
        await until(lambda: not any(is_running(pid) for pid in started))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def commands_of(pids: list[int]) -> set[str]:
    """What they are after `python -m octavo`."""
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0") for pid in pids if is_running(pid)]
    return {line[3] for line in lines if line[1:3] == ["-m", "octavo"]}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--replicas", "zero"], "--replicas"),
        (["--port", "70000"], "--port"),
        (["--grpc-port", "70000"], "--grpc-port"),
        (["--context-length", "-1"], "spec.model.contextLength"),
        (["--kv-cache-memory", "lots"], "spec.engine.kvCacheMemory"),
        (["--token-interval", "0ms"], "spec.engine.tokenInterval"),
        (["--dtype", "float8"], "spec.model.dtype"),
        (["--no-such-flag"], "--no-such-flag"),
        (["/no/such/folder"], "/no/such/folder"),
        (["-f", "/no/such/file.yaml"], "/no/such/file.yaml"),
        (["bundled://unheard-of"], "unheard-of"),
        (["--api-key", "two words"], "--api-key"),
        (["--api-keys-file", "/no/such/keys"], "/no/such/keys"),
        (["--cors-origin", "example.com"], "--cors-origin"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_the_culprit(arguments: list[str], named: str) -> None:
    ended = done("run", *arguments)
    assert ended.code == 2 and named in ended.err and "Traceback" not in ended.err, ended.err


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_a_port_that_another_service_has_ends_with_2_before_anything_is_started(model: Path, flag: str) -> None:
    port = free_port()
    with socket.socket() as routers:  # as another `octavo run` has it
        routers.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        routers.bind(("127.0.0.1", port))
        routers.listen()
        ended = done("run", model, "--port", free_port(), flag, port)
    assert ended.code == 2, ended.err
    assert f"{flag} 127.0.0.1:{port}: another process listens there" in ended.err and "another port" in ended.err
    assert "draining" not in ended.err


def test_a_setting_that_the_model_cannot_fulfil_ends_with_2_and_names_the_field(model: Path) -> None:
    ended = done("run", model, "--context-length", 9999)
    assert ended.code == 2, ended.err
    assert "contextLength (--context-length): 9999 is beyond the model's 2048" in ended.err


def test_a_broken_model_folder_ends_with_2_and_names_the_file(tmp_path: Path) -> None:
    model = successor_checkpoint(tmp_path / "model")
    (model / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    ended = done("run", model)
    assert ended.code == 2, ended.err
    assert re.search(r"model\.safetensors.*LFS", ended.err)


async def test_a_gpu_installation_without_kernels_ends_with_the_remedy(model: Path) -> None:
    """A restart cannot help, so it does not restart for ever."""
    with local_run(model, "--device", "cuda", main=without_kernels.main) as run:
        assert await asyncio.to_thread(run.end) == 1, run.text
    said = [line for line in run.text.splitlines() if line.startswith("octavo run: KernelsMissing: ")]
    assert len(said) == 1, run.text
    assert "python -m octavo.kernels.build" in said[0] and said[0].endswith(FailureReason.KERNELS_MISSING.advice)
