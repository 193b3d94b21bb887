"""The fork server of the ranks: a process of the pod that has imported PyTorch once, and forks.

To import PyTorch takes seconds of a CPU. A rank that is forked has it already, so a lost one is back sooner, and the
ranks of a pod share that memory until they write to it.

    supervisor --(context, descriptors)--> fork server --fork--> middle --fork--> rank
               <--------- its pid -------                   exits, so that the rank is the supervisor's own child
               ---------------------- "go" -------------------------------->

Here is the process itself; supervisor/fork_server_client.py is the supervisor's end. It must have one thread and no GPU
context when it forks.
"""

import array
import gc
import os
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable

from octavo.shared.parent import die_with
from octavo.worker.ipc import process, process_context
from octavo.worker.ipc.process_context import ProcessContext
from octavo.worker.rank import pytorch

PID = struct.Struct("<i")
MESSAGE_BYTES = 1 << 17
DESCRIPTORS = 64


def ask(end: socket.socket, context: ProcessContext, go: int) -> None:
    """Ask for a rank. Its descriptors travel beside the message, in a fixed order, `go` as the last."""
    fds = array.array("i", [*context.shared.all(), context.report, go])
    end.sendmsg([process_context.dump(context).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])


def _receive(end: socket.socket) -> tuple[ProcessContext, int] | None:
    """What is asked for, with the descriptors as they are numbered here; None when the supervisor has closed the
    socket."""
    text, rights, *_ = end.recvmsg(MESSAGE_BYTES, socket.CMSG_LEN(DESCRIPTORS * array.array("i").itemsize))
    if not text:
        return None
    fds = array.array("i")
    for _, _, data in rights:
        fds.frombytes(data)
    *shared, report, go = fds
    return process_context.renumbered(process_context.load(text.decode()), shared, report), go


def _fork_rank(end: socket.socket, context: ProcessContext, go: int, main: Callable[[ProcessContext], None]) -> int:
    """Fork a rank; its pid. In the rank this does not return."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        parent = os.getpid()
        rank = os.fork()
        if rank != 0:
            os.write(writing, PID.pack(rank))
            os._exit(0)
        for fd in (reading, writing, end.fileno()):
            os.close(fd)
        _run_rank(context, go, main, parent)
    os.waitpid(middle, 0)
    with os.fdopen(reading, "rb") as pipe:
        os.close(writing)
        return int(PID.unpack(pipe.read(PID.size))[0])


def _run_rank(context: ProcessContext, go: int, main: Callable[[ProcessContext], None], middle: int) -> None:
    """Be what `python -m octavo.worker.rank` would be, once the supervisor knows this pid. Never returns."""
    try:
        if os.read(go, 1):  # else the supervisor wants it no longer
            os.close(go)
            while os.getppid() == middle:  # then it is the supervisor's child, or that has ended
                time.sleep(0.001)
            process.rename("octavo.worker.rank", str(context.rank))
            process.run("rank", main, context)
    finally:
        os._exit(1)


def main(argv: list[str]) -> None:
    """argv: the descriptor of the socket to the supervisor, its pid. Ends when that goes."""
    end = socket.socket(fileno=int(argv[0]))
    die_with(int(argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.disable()  # what imports make stays; to look through it time and again takes a tenth of them
    pytorch.load()
    import octavo.worker.rank.devices
    import octavo.worker.runner.cpu.runner  # noqa: F401  # both for what they import
    from octavo.worker.rank import rank

    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    gc.collect()
    gc.freeze()  # a collection would write to every object, and each rank then have its own copy
    gc.enable()
    while (asked := _receive(end)) is not None:
        context, go = asked
        pid = _fork_rank(end, context, go, rank.main)
        for fd in (*context.shared.all(), context.report, go):
            os.close(fd)
        end.send(PID.pack(pid))


if __name__ == "__main__":
    main(sys.argv[1:])
