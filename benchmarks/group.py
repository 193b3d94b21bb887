"""What a remote pod costs the leader: `python benchmarks/group.py [--steps N] [--interval-ms MS] [--out FILE]`.

The leader's gRPC process, between a core that gives it steps of 256 requests (three under way, a step every 5 ms) and
1, 2 or 4 pods on loopback that do no work: each takes every step, one of them answers. CPU-microseconds of that process
per pod and step: the step out, and the pod's heartbeats and the result in; and how much of them one more pod adds, and
what a step costs whatever the pods. Beside it, in turn, what the same messages take by bare sockets (group_bare.py):
what no server could be under. Last, steps one at a time: from the core's giving one to its having the result.
"""

import argparse
import asyncio
import gc
import multiprocessing
import os
import random
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import group_bare
import grpc.aio
import record
import uvloop

from octavo.proto.v1 import group_pb2, group_pb2_grpc
from octavo.worker.channel import OPTIONS
from octavo.worker.config import Config
from octavo.worker.ipc import process_context, ring
from octavo.worker.ipc.process_context import ProcessContext, Shared, create_shared
from octavo.worker.ipc.ring import RingReader
from octavo.worker.ipc.ring_sender import RingSender
from octavo.worker.ipc.shared_board import Board
from octavo.worker.leader.step_broadcast import StepBroadcast
from octavo.worker.lifecycle.incarnation import Identity, Incarnation
from octavo.worker.membership.leader import GroupServicer
from octavo.worker.membership.pod import Membership
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.step import Forward, Sample, Step, StepResult
from octavo.worker.tls import Roles

REQUESTS, UNDER_WAY, INTERVAL_MS = 256, 3, 5.0
SINGLE_STEPS = 500  # one at a time, for the latency
LIMIT_US = 150
PODS = (1, 2, 4)
IDENTITY = Identity("", "", "", (1, 1, 1))
FORK = multiprocessing.get_context("fork")


def step(number: int) -> Step:
    """256 rows that decode, one of them with a new block."""
    rows = tuple(range(REQUESTS))
    starts = tuple(1000 + number + row for row in rows)
    return Step(number, Forward(slots=rows, starts=starts, counts=(1,) * REQUESTS), Sample(rows, starts))


async def lead(given: ProcessContext) -> None:
    """The leader's process: what worker/leader/server.py does for other pods. given.local: the address."""
    layout = given.config.layout
    relay = StepBroadcast(given.shared, Board(given.shared.board), layout, asyncio.Event())
    group = GroupServicer(Incarnation("i", IDENTITY, layout.pods), Roles(given.config), relay)
    server = grpc.aio.server(options=OPTIONS)
    group_pb2_grpc.add_GroupServicer_to_server(group, server)
    server.add_insecure_port(given.local)
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
        self._ids = sampled()

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
        return group_pb2.Heartbeat(ranks=[group_pb2.RankHeartbeat(phase=group_pb2.SERVING, progress_percent=100)])


def sampled() -> tuple[int, ...]:
    return tuple(random.choices(range(49152), k=REQUESTS))


async def follow(address: str, pods: int) -> None:
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as opened:
        members = [Pod(index, index == pods) for index in range(1, pods + 1)]
        await asyncio.gather(*(one.membership.join(opened) for one in members))


class Core:
    """The core's part. under_way: steps, or in the beginning pods, whose word has not come."""

    def __init__(self, shared: Shared, pods: int) -> None:
        self._steps, self._results = RingSender(shared.relay), RingReader(shared.returned)
        self._poll = select.poll()
        self._poll.register(self._results.fds.data, select.POLLIN)
        self._under_way, self._number = pods, 0

    def give(self) -> None:
        self._number += 1
        self._under_way += 1
        self._steps.send(encode(step(self._number)))
        self._steps.flush()

    def take(self, under_way: int) -> None:
        """Until no more than so many are under way."""
        while self._under_way > under_way:
            self._poll.poll()
            ring.clear(self._results.fds.data)
            while self._results.pop() is not None:
                self._under_way -= 1


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the leader, in microseconds: of CPU for a step, and until a step's result is back, at two percentiles."""

    step_us: float
    p50_us: float
    p99_us: float


def measure(pods: int, steps: int, interval_s: float, barely: bool) -> Cost:
    """interval_s: 0 gives steps back to back."""
    shared = create_shared(1)
    try:
        core = Core(shared, pods)
        with _ends(shared, pods, barely) as leader:
            core.take(0)
            before, began = cpu_s(leader), time.monotonic()
            for number in range(1, steps + 1):
                time.sleep(max(0.0, began + number * interval_s - time.monotonic()))
                core.give()
                core.take(UNDER_WAY - 1)
            spent = cpu_s(leader) - before
            core.take(0)
            took = [_single(core) for _ in range(SINGLE_STEPS)]
    finally:
        shared.close()
    cuts = statistics.quantiles(took, n=100)
    return Cost(spent / steps * 1e6, cuts[49] * 1e6, cuts[98] * 1e6)


def _single(core: Core) -> float:
    """Seconds of one step, with none beside it."""
    time.sleep(INTERVAL_MS / 1000)
    began = time.monotonic()
    core.give()
    core.take(0)
    return time.monotonic() - began


@contextmanager
def _ends(shared: Shared, pods: int, barely: bool) -> Iterator[int]:
    """The leader and its pods: the leader's pid."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    leader: multiprocessing.process.BaseProcess | subprocess.Popen[bytes]
    if barely:
        leader = FORK.Process(target=group_bare.lead, args=(shared, port, pods))
        leader.start()
        others = FORK.Process(target=group_bare.follow, args=(port, pods, sampled()))
    else:
        unused = ["unix:/unused"] * (pods + 1)
        config = Config("m", "m", *unused[:1] * 5, pipeline=pods + 1, peers=tuple(unused))
        given = ProcessContext(config, "", "", "i", shared, local=address, report=-1, rank=-1, parent=os.getpid())
        leader = subprocess.Popen(  # as worker/supervisor/child_processes.py starts serve
            [sys.executable, __file__, "--lead", process_context.dump(given)],
            pass_fds=shared.all(),
        )
        others = FORK.Process(target=lambda: asyncio.run(follow(address, pods)))
    others.start()
    try:
        assert leader.pid is not None
        yield leader.pid
    finally:
        for process in (others, leader):
            process.kill()
        others.join()
        leader.wait() if isinstance(leader, subprocess.Popen) else leader.join()


def cpu_s(pid: int) -> float:
    """Of all its threads, as the scheduler counts it: to the nanosecond."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--interval-ms", type=float, default=INTERVAL_MS, help="between two steps; 0: back to back")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "group-cpu.json")
    parser.add_argument("--lead", help=argparse.SUPPRESS)  # how it starts its leader
    arguments = parser.parse_args()
    if arguments.lead is not None:
        return uvloop.run(lead(process_context.load(arguments.lead)))
    made_on, results, totals = record.machine(("grpcio", "protobuf", "uvloop")), [], {}
    for pods in PODS:
        interval_s = arguments.interval_ms / 1000
        cost, floor = (measure(pods, arguments.steps, interval_s, barely) for barely in (False, True))
        totals[pods] = cost.step_us
        each, bare = cost.step_us / pods, floor.step_us / pods
        results.append(
            {
                "pods": pods, "interval_ms": arguments.interval_ms, "us_per_pod_and_step": round(each),
                "bare_us_per_pod_and_step": round(bare), "latency_p50_us": round(cost.p50_us),
                "latency_p99_us": round(cost.p99_us),
            }
        )  # fmt: skip
        verdict = "met" if each <= LIMIT_US else "MISSED"
        print(
            f"{pods} pods: {each:5.0f} us of the leader per pod and step (at most {LIMIT_US}: {verdict}); bare sockets"
            f" {bare:5.0f} us; a step is back after {cost.p50_us:.0f} us (p50), {cost.p99_us:.0f} us (p99)"
        )
    added, once = statistics.linear_regression(list(totals), list(totals.values()))
    print(f"one more pod adds {added:.0f} us to a step, which takes {once:.0f} us besides")
    results.append({"us_added_by_one_pod": round(added), "us_of_a_step_besides": round(once)})
    record.write(arguments.out, made_on, results)


if __name__ == "__main__":
    main()
