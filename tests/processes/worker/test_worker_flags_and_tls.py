"""Wrong flags exit with 2 and name the flag; wrong certificates open nothing."""

import itertools
import tempfile
from pathlib import Path

import grpc
import grpc.aio
import pytest
from support.models.checkpoints import successor_checkpoint
from support.patience import PATIENCE_S
from support.processes.commands import done
from support.processes.ports import free_port
from support.worker.authority import UID, Authority
from support.worker.worker import RouterClient, WorkerProcess, until

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.channel import OPTIONS


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--tensor", "3", "--ranks-per-pod", "2"], "--ranks-per-pod"),
        (["--pipeline", "2"], "--peers"),
        (["--pipeline", "2", "--peers", "unix:/a,127.0.0.1:65500"], "--peers: 127.0.0.1:65500"),
        (["--tensor", "2", "--pod-index", "1"], "--pod-index"),
        (["--max-requests", "0"], "--max-requests"),
        (["--context-length", "-5"], "--context-length"),
        (["--threads", "0"], "--threads"),
        (["--token-interval", "0"], "--token-interval"),
        (["--token-interval", "61"], "--token-interval"),
        (["--kv-cache-memory", "64 bananas"], "--kv-cache-memory"),
        (["--kv-cache-memory", "9" * 400], "--kv-cache-memory"),
        (["--serve", "0.0.0.0:8500"], "--serve"),
        (["--health", "nowhere"], "--health"),
        (["--status", "unix:relative"], "--status"),
        (["--tls-dir", "/nonexistent"], "--tls-dir"),
        (["--dtype", "int3"], "--dtype"),
        (["--model", ""], "--model"),
    ],
)
def test_a_wrong_flag_exits_with_2_and_is_named(tmp_path, flags, named):
    places = [part for name in ("serve", "group", "status") for part in (f"--{name}", f"unix:{tmp_path}/{name}")]
    pages = ["--health", f"unix:{tmp_path}/h", "--metrics", f"unix:{tmp_path}/m"]
    ended = done("worker", "--model", tmp_path, *places, *pages, *flags)
    assert ended.code == 2
    assert named in ended.err
    assert "Traceback" not in ended.err


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


async def test_a_certificate_opens_only_what_its_role_may_call(tmp_path, authority):
    serve, group, status = (f"127.0.0.1:{free_port()}" for _ in range(3))
    model = successor_checkpoint(tmp_path / "model")
    folder = authority.issue("worker")
    addresses = {"serve": serve, "group": group, "status": status}
    worker = WorkerProcess(model, "--tls-dir", str(folder), "--service-uid", UID, addresses=addresses).start()
    try:
        await worker.ready()
        router = await RouterClient(serve, UID, authority.dial("router", serve)).open()
        answer = await router.submit([ord("a")], 3)
        await until(answer.done.is_set)
        assert answer.ids == [ord("b"), ord("c"), ord("d")]
        await router.close()
        assert (await _status(authority, "operator", status)).phase == group_pb2.SERVING
        assert await _refusal(_status(authority, "router", status)) == grpc.StatusCode.PERMISSION_DENIED
        for role in ("worker", "operator"):
            assert await _intrusion(authority, role, serve) == grpc.StatusCode.PERMISSION_DENIED
        assert await _refusal(_join(authority, "router", group)) == grpc.StatusCode.PERMISSION_DENIED
        stranger = Authority(tmp_path)
        assert await _refusal(_status(stranger, "operator", status)) == grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(status, options=OPTIONS) as channel:
            plain = group_pb2_grpc.StatusStub(channel).Get(group_pb2.StatusRequest(), timeout=PATIENCE_S)
            assert await _refusal(plain) == grpc.StatusCode.UNAVAILABLE
    finally:
        worker.close()


async def test_renewed_certificates_are_served_without_a_restart(tmp_path, authority):
    status = f"127.0.0.1:{free_port()}"
    folder = authority.issue("worker")
    flags = ("--tls-dir", str(folder), "--service-uid", UID)
    worker = WorkerProcess(tmp_path, *flags, addresses={"status": status}).start()
    try:
        await until(lambda: worker.get("health", "/livez")[0] == 200, PATIENCE_S, worker.text)
        await _status(authority, "operator", status)
        successor = Authority(tmp_path / "new")
        successor.issue("worker", folder)
        assert (await _status(successor, "operator", status)).service_uid == UID
        assert await _refusal(_status(authority, "operator", status)) == grpc.StatusCode.UNAVAILABLE
    finally:
        worker.close()


async def test_the_operator_and_users_in_the_pod_put_a_group_to_sleep_and_routers_may_not(tmp_path, authority):
    serve, group, status = (f"127.0.0.1:{free_port()}" for _ in range(3))
    addresses = {"serve": serve, "group": group, "status": status}
    flags = ("--tls-dir", str(authority.issue("worker")), "--service-uid", UID)
    worker = WorkerProcess(successor_checkpoint(tmp_path / "model"), *flags, addresses=addresses).start()
    try:
        await worker.ready()
        for role, address in itertools.product(("router", "worker"), (serve, group, status)):
            assert await _refusal(_sleep(authority.dial(role, address))) == grpc.StatusCode.PERMISSION_DENIED
        assert (await _sleep(authority.dial("operator", status))).changed
        running = await _status(authority, "operator", status)
        assert running.phase == group_pb2.ASLEEP
        sockets = list(Path(tempfile.gettempdir()).glob("octavo-worker-*/0-0-status.sock"))
        own = [socket for socket in sockets if await _incarnation(socket) == running.incarnation]
        assert len(own) == 1, sockets
        woken = done("wake", "--status", f"unix:{own[0]}")
        assert woken.code == 0 and ": awake: " in woken.out, woken.err
        assert (await _status(authority, "operator", status)).phase == group_pb2.SERVING
    finally:
        worker.close()


async def _sleep(channel):
    async with channel:
        return await group_pb2_grpc.GroupSleepStub(channel).Sleep(group_pb2.SleepRequest(), timeout=PATIENCE_S)


async def _incarnation(socket):
    """Of the worker that answers there; empty when none does."""
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=OPTIONS) as channel:
        try:
            stub = group_pb2_grpc.StatusStub(channel)
            return (await stub.Get(group_pb2.StatusRequest(), timeout=PATIENCE_S)).incarnation
        except grpc.aio.AioRpcError:
            return ""


async def _status(authority, role, address):
    async with authority.dial(role, address) as channel:
        return await group_pb2_grpc.StatusStub(channel).Get(group_pb2.StatusRequest(), timeout=PATIENCE_S)


async def _join(authority, role, address):
    async with authority.dial(role, address) as channel:
        call = group_pb2_grpc.GroupStub(channel).Join(timeout=PATIENCE_S)
        await call.write(group_pb2.FromPod(handshake=group_pb2.JoinHandshake(service_uid=UID)))
        await call.read()
        raise grpc.aio.AioRpcError(await call.code(), (), ())


async def _refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call
    return refusal.value.code()


async def _intrusion(authority, role, address):
    """gRPC's asyncio client calls it INTERNAL when the refusal comes while it writes, and tells no more."""
    code = grpc.StatusCode.INTERNAL
    for _ in range(20):
        if code != grpc.StatusCode.INTERNAL:
            break
        intruder = RouterClient(address, UID, authority.dial(role, address))
        code = await _refusal(intruder.open())
        await intruder.close()
    return code
