"""Questions to the fork server that are taken back: each answer is given to the rank that it is for."""

import asyncio
import os
import socket

from octavo.worker.config import Config
from octavo.worker.ipc.process_context import ProcessContext, create_shared
from octavo.worker.rank import fork_server
from octavo.worker.supervisor.fork_server_client import ForkServer, ForkServerClient

ADDRESSES = dict.fromkeys(("serve", "group", "status", "health", "metrics"), "unix:/tmp/x")


async def test_an_answer_that_comes_as_its_question_is_taken_back_is_not_waited_for_again() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    shared = create_shared(1)
    config = Config(model="/m", served_name="m", **ADDRESSES)
    report = os.open(os.devnull, os.O_RDONLY)
    context = ProcessContext(config, "/m", "f", "i", shared, "unix:/tmp/y", report, rank=0, parent=os.getpid())
    client = ForkServerClient(ForkServer(os.getpid(), ours))
    try:
        asking = asyncio.create_task(client.fork_rank(context))
        await asyncio.sleep(0)
        theirs.send(fork_server.PID.pack(11))
        asking.cancel()
        client._hear()  # in the same pass of the loop, before `asking` goes on
        await asyncio.wait({asking})
        wanted = asyncio.create_task(client.fork_rank(context))
        await asyncio.sleep(0)
        theirs.send(fork_server.PID.pack(12))
        pid, go = await asyncio.wait_for(wanted, 10)
        os.close(go)
        assert asking.cancelled() and pid == 12
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        for end in (ours, theirs):
            end.close()
        os.close(report)
        shared.close()
