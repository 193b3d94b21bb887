"""The messages between a leader and its pods by bare sockets: the floor of benchmarks/group.py.

Neither HTTP/2 nor an event loop: each end is one thread that waits for its sockets, the leader's for its rings too.
"""

import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence

from octavo.proto.v1 import group_pb2
from octavo.worker.ipc import ring
from octavo.worker.ipc.process_context import Shared
from octavo.worker.ipc.ring import RingReader
from octavo.worker.ipc.ring_sender import RingSender
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.step import Step, StepResult

_LENGTH = struct.Struct("<I")


class Link:
    """Messages on a connection, each behind its length."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._data = connection, b""

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: bytes) -> None:
        self._connection.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self) -> Iterator[bytes]:
        """What is there, once something is."""
        self._data += self._connection.recv(1 << 16)
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            end = _LENGTH.size + length
            if len(self._data) < end:
                return
            yield self._data[_LENGTH.size : end]
            self._data = self._data[end:]


def lead(shared: Shared, port: int, pods: int) -> None:
    steps, returned = RingReader(shared.relay), RingSender(shared.returned)
    poll, members = select.poll(), {}
    poll.register(steps.fds.data, select.POLLIN)
    with socket.create_server(("127.0.0.1", port)) as listener:
        for _ in range(pods):
            one = Link(listener.accept()[0])
            members[one.fileno()] = one
            poll.register(one, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in members:
                for message in members[fd].receive():
                    returned.send(group_pb2.FromPod.FromString(message).record)
                    returned.flush()
                continue
            ring.clear(fd)
            while (record := steps.pop()) is not None:
                message = group_pb2.FromLeader(incarnation="i", step=record).SerializeToString()
                for one in members.values():
                    one.send(message)


def follow(port: int, pods: int, ids: Sequence[int]) -> None:
    """Each says that it is there, and the last one answers."""
    members, poll = [_reach(port) for _ in range(pods)], select.poll()
    for one in members:
        poll.register(one, select.POLLIN)
        one.send(group_pb2.FromPod(record=b"here").SerializeToString())
    by_fd = {one.fileno(): one for one in members}
    while True:
        for fd, _ in poll.poll():
            for message in by_fd[fd].receive():
                if by_fd[fd] is members[-1]:
                    taken = decode(group_pb2.FromLeader.FromString(message).step)
                    assert isinstance(taken, Step)
                    answer = group_pb2.FromPod(incarnation="i", record=encode(StepResult(taken.number, tuple(ids))))
                    members[-1].send(answer.SerializeToString())


def _reach(port: int) -> Link:
    while True:
        try:
            return Link(socket.create_connection(("127.0.0.1", port)))
        except ConnectionRefusedError:
            time.sleep(0.05)
