"""A supervisor of nothing: it has ranks born that run into a bad wiring at once, and prints what it sees.

In a process of its own, because it becomes the parent of orphans.
"""

import asyncio
import os
from pathlib import Path

from octavo.worker import process
from octavo.worker.config import Config
from octavo.worker.cradle import Cradle
from octavo.worker.wiring import Wiring, create_shared

ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")


async def main() -> None:
    process.adopt_orphans()
    shared = create_shared(1)
    config = Config(model="/nowhere", served_name="m", device="cpu", **ADDRESSES)
    report, _ = os.pipe()
    share = Wiring(config, "/nowhere", "f", "i", shared, "unix:/tmp/y", report, rank=0, parent=os.getpid())
    cradle = Cradle()
    unwanted = asyncio.create_task(cradle.bear(share))
    await asyncio.sleep(0)  # it has asked
    unwanted.cancel()
    pid, go = await cradle.bear(share)
    print("parent is ours:", Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()))
    await asyncio.sleep(0.5)  # who was not wanted has ended
    _reap()
    (nursery,) = [other for other in _children() if other != pid]
    print("threads of the nursery:", _threads(nursery))
    print("waits for its go:", b"nursery" in _command(pid))
    os.close(go)
    print("without it:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.kill(nursery, 9)
    os.waitpid(nursery, 0)
    pid, go = await cradle.bear(share)
    print("another nursery:", pid > 0)
    asking = asyncio.create_task(cradle.bear(share))
    await asyncio.sleep(0)
    (nursery,) = [other for other in _children() if other != pid]
    os.kill(nursery, 9)
    try:
        await asking
    except OSError as error:
        print("lost nursery:", error)


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
