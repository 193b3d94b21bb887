"""What a remote pod costs the leader: `python benchmarks/group.py [--steps N] [--interval-ms MS] [--out FILE]`.

The leader's gRPC process, between a core that gives it steps of 256 requests (three under way, a step every 5 ms) and
1, 2 or 4 pods on loopback that do no work: each takes every step, one of them answers. CPU-microseconds of that process
per pod and step: the step out, and the pod's heartbeats and the result in. Beside it, in turn, what the same messages
take by bare sockets and one thread that only waits for them and for the rings: what no server could be under.
"""

import argparse
import asyncio
import gc
import multiprocessing
import random
import select
import socket
import time
from pathlib import Path

import grpc.aio
import record

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker import ring
from octavo.worker.board import Board
from octavo.worker.channel import OPTIONS
from octavo.worker.codec import decode, encode
from octavo.worker.config import Config
from octavo.worker.group.incarnation import Identity, Incarnation
from octavo.worker.group.leader import GroupServicer
from octavo.worker.group.pod import Membership
from octavo.worker.outlet import Outlet
from octavo.worker.place import Layout
from octavo.worker.relay import Relay
from octavo.worker.ring import Reader
from octavo.worker.step import Forward, Sample, Step, StepResult
from octavo.worker.tls import Roles
from octavo.worker.wiring import Shared, create_shared

REQUESTS, UNDER_WAY, INTERVAL_MS = 256, 3, 5.0
LIMIT_US = 150
PODS = (1, 2, 4)
IDENTITY = Identity("", "", "", (1, 1, 1))


def step(number: int) -> Step:
    """256 rows that decode, one of them with a new block."""
    rows = tuple(range(REQUESTS))
    starts = tuple(1000 + number + row for row in rows)
    return Step(number, Forward(slots=rows, starts=starts, counts=(1,) * REQUESTS), Sample(rows, starts))


async def lead(shared: Shared, address: str, pods: int) -> None:
    """The leader's process: what worker/serve.py does for other pods."""
    relay = Relay(shared, Board(shared.board), Layout(1, pods + 1, 1), asyncio.Event())
    incarnation = Incarnation("i", IDENTITY, pods + 1)
    config = Config("m", "m", *["unix:/unused"] * 5)
    group = GroupServicer(incarnation, Roles(config), relay)
    server = grpc.aio.server(options=OPTIONS)
    group_pb2_grpc.add_GroupServicer_to_server(group, server)
    server.add_insecure_port(address)
    await server.start()
    relay.start(group)
    gc.freeze()
    await group.watch()


class Pod:
    """Takes steps; the last pod answers them."""

    def __init__(self, index: int, answers: bool) -> None:
        shake = group_pb2.JoinHandshake(pod=index, tensor=1, pipeline=1, ranks=1, name=f"pod-{index}")
        self.membership = Membership(shake, self)
        self._answers = answers
        self._ids = tuple(random.choices(range(49152), k=REQUESTS))

    def joined(self, incarnation: str) -> None:
        self.membership.record(b"here")

    def step(self, record: bytes) -> None:
        if self._answers:
            taken = decode(record)
            assert isinstance(taken, Step)
            self.membership.record(encode(StepResult(taken.number, self._ids)))

    def group_is(self, phase: "group_pb2.Phase.ValueType") -> None:
        pass

    def heartbeat(self) -> group_pb2.Heartbeat:
        return group_pb2.Heartbeat(ranks=[group_pb2.RankBeat(phase=group_pb2.SERVING, progress_percent=100)])


async def follow(address: str, pods: int) -> None:
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        members = [Pod(index, index == pods) for index in range(1, pods + 1)]
        await asyncio.gather(*(one.membership.join(channel) for one in members))


def lead_barely(shared: Shared, port: int, pods: int) -> None:
    """The same messages, and nothing around them: neither HTTP/2 nor an event loop."""
    steps, returned = Reader(shared.relay), Outlet(shared.returned)
    poll, members = select.poll(), {}
    poll.register(steps.fds.data, select.POLLIN)
    with socket.create_server(("127.0.0.1", port)) as listener:
        for _ in range(pods):
            one, _ = listener.accept()
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            members[one.fileno()] = one
            poll.register(one, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in members:
                returned.send(group_pb2.FromPod.FromString(members[fd].recv(1 << 16)).record)
                returned.flush()
                continue
            ring.clear(fd)
            while (record := steps.pop()) is not None:
                message = group_pb2.FromLeader(incarnation="i", step=record).SerializeToString()
                for one in members.values():
                    one.sendall(message)


def follow_barely(port: int, pods: int) -> None:
    """One of them says that all are there, and later answers; each message comes whole, as nobody is that late."""
    members = [_reach(port) for _ in range(pods)]
    poll = select.poll()
    for one in members:
        poll.register(one, select.POLLIN)
    for _ in range(pods):
        members[-1].sendall(group_pb2.FromPod(record=b"here").SerializeToString())
        time.sleep(0.1)
    by_fd, ids = {one.fileno(): one for one in members}, tuple(random.choices(range(49152), k=REQUESTS))
    while True:
        for fd, _ in poll.poll():
            message = by_fd[fd].recv(1 << 16)
            if by_fd[fd] is members[-1]:
                taken = decode(group_pb2.FromLeader.FromString(message).step)
                assert isinstance(taken, Step)
                answer = group_pb2.FromPod(incarnation="i", record=encode(StepResult(taken.number, ids)))
                members[-1].sendall(answer.SerializeToString())


def _reach(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)


def cpu_s(pid: int) -> float:
    """Of all its threads, as the scheduler counts it: to the nanosecond."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def measure(pods: int, steps: int, interval_s: float, barely: bool) -> float:
    """Microseconds of the leader per step; the core's part is played here. interval_s: 0 gives steps back to back."""
    shared = create_shared(1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    fork = multiprocessing.get_context("fork")
    if barely:
        leader = fork.Process(target=lead_barely, args=(shared, port, pods))
        others = fork.Process(target=follow_barely, args=(port, pods))
    else:
        leader = fork.Process(target=lambda: asyncio.run(lead(shared, address, pods)))
        others = fork.Process(target=lambda: asyncio.run(follow(address, pods)))
    steps_out, results = Outlet(shared.relay), Reader(shared.returned)
    poll = select.poll()
    poll.register(results.fds.data, select.POLLIN)

    def take(wanted: int) -> None:
        """Until so many records have come back."""
        while wanted > 0:
            poll.poll()
            ring.clear(results.fds.data)
            while results.pop() is not None:
                wanted -= 1

    leader.start()
    others.start()
    try:
        take(pods)
        assert leader.pid is not None
        before, began = cpu_s(leader.pid), time.monotonic()
        for number in range(1, steps + 1):
            time.sleep(max(0.0, began + number * interval_s - time.monotonic()))
            steps_out.send(encode(step(number)))
            steps_out.flush()
            if number >= UNDER_WAY:
                take(1)
        spent = cpu_s(leader.pid) - before
    finally:
        for process in (others, leader):
            process.kill()
            process.join()
        shared.close()
    return spent / steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--interval-ms", type=float, default=INTERVAL_MS, help="between two steps; 0: back to back")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "group-cpu.json")
    arguments = parser.parse_args()
    made_on, results = record.machine(("grpcio", "protobuf")), []
    for pods in PODS:
        interval_s = arguments.interval_ms / 1000
        spent, floor = (measure(pods, arguments.steps, interval_s, barely) / pods for barely in (False, True))
        costs = {"us_per_pod_and_step": round(spent), "bare_us_per_pod_and_step": round(floor)}
        results.append({"pods": pods, "interval_ms": arguments.interval_ms, **costs})
        verdict = "met" if spent <= LIMIT_US else "MISSED"
        print(
            f"{pods} pods: {spent:5.0f} us of the leader per pod and step (at most {LIMIT_US}: {verdict});"
            f" bare sockets {floor:5.0f} us"
        )
    record.write(arguments.out, made_on, results)


if __name__ == "__main__":
    main()
