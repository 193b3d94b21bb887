"""A supervisor of nothing: it has ranks forked that run into a bad wiring at once, and prints what it sees.

In a process of its own, because it becomes the parent of orphans.
"""

import asyncio
import os
import signal
import socket
from pathlib import Path

from octavo.worker.config import Config
from octavo.worker.ipc import process
from octavo.worker.ipc.process_context import ProcessContext, create_shared
from octavo.worker.supervisor import fork_server_client
from octavo.worker.supervisor.child_processes import Children
from octavo.worker.supervisor.fork_server_client import ForkServerClient

ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")


async def main() -> None:
    process.adopt_orphans()
    shared = create_shared(1)
    config = Config(model="/nowhere", served_name="m", device="cpu", **ADDRESSES)
    report, _ = os.pipe()
    share = ProcessContext(config, "/nowhere", "f", "i", shared, "unix:/tmp/y", report, rank=0, parent=os.getpid())
    first = fork_server_client.start()
    client = ForkServerClient(first)
    unwanted = asyncio.create_task(client.fork_rank(share))
    await asyncio.sleep(0)  # it has asked
    unwanted.cancel()
    pid, go = await client.fork_rank(share)
    print("parent is ours:", Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()))
    await asyncio.sleep(0.5)  # the unwanted rank has ended
    _reap()
    (fork_server,) = [other for other in _children() if other != pid]
    print("the one started before is asked:", fork_server == first.pid)
    print("threads of the fork_server:", _threads(fork_server))
    print("waits for its go:", b"fork_server" in _command(pid))
    os.close(go)
    print("without it:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    asking = asyncio.create_task(client.fork_rank(share))
    await asyncio.sleep(0)
    os.kill(fork_server, 9)
    print("lost fork_server:", await _refusal(asking))
    os.waitpid(fork_server, 0)
    early = Early()
    children = early.children = Children(early)
    await children.fork_rank(share)
    print(
        "another fork_server, and a rank that had ended before it was heard of:", children.exits[0].code, children.pids
    )
    await children.kill()
    (fork_server,) = _children()
    os.kill(fork_server, signal.SIGSTOP)
    for _ in range(2):
        asking = asyncio.create_task(early.fork_rank(share))
        await asyncio.sleep(0.1)
        asking.cancel()
        await asyncio.wait({asking})
    fork_server_client._STUCK_S = 0.1
    early._open = _no_more  # type: ignore[method-assign]
    print("stopped fork_server:", await _refusal(asyncio.create_task(early.fork_rank(share))))
    print("is ended:", os.waitstatus_to_exitcode(os.waitpid(fork_server, 0)[1]))


class Early(ForkServerClient):
    """Its ranks have ended, and were collected, when their pid is reported."""

    children: Children

    async def fork_rank(self, share: ProcessContext) -> tuple[int, int]:
        pid, go = await super().fork_rank(share)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.children.reap()
        return pid, go


def _no_more() -> socket.socket:
    raise OSError("another is asked for")


async def _refusal(asking: "asyncio.Task[tuple[int, int]]") -> OSError | None:
    try:
        await asking
    except OSError as error:
        return error
    return None


def _children() -> list[int]:
    return [int(text) for text in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


def _reap() -> None:
    while os.waitpid(-1, os.WNOHANG)[0]:
        pass


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


if __name__ == "__main__":
    asyncio.run(main())
