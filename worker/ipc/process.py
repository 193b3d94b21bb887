"""How a child of the supervisor begins and how it fails.

It dies with the supervisor (PR_SET_PDEATHSIG), leaves Ctrl-C and SIGTERM to it, and tells the cause of a failure as
one line of JSON through an inherited pipe, so that a status names more than an exit code.
"""

import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.shared.failure_reasons import FailureReason, failed
from octavo.shared.parent import die_with, prctl
from octavo.worker.errors import WorkerError
from octavo.worker.ipc import process_context
from octavo.worker.ipc.process_context import ProcessContext

_PR_SET_CHILD_SUBREAPER = 36
_REPORT_BYTES = 4096  # what a pipe holds at least: the write never waits
_WIDEST = 6  # bytes that a character may take: a control character as \u0000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What a child said before it exited."""

    reason: FailureReason
    message: str


def run(name: str, main: Callable[[ProcessContext], None], context: ProcessContext | None = None) -> None:
    """Be the child `name` with the context of the command line; returns when `main` does, exits 1 with a report when it
    raises."""
    context = context or process_context.load(sys.argv[1])
    die_with(context.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(
        level=context.config.log_level.upper(),
        stream=sys.stderr,
        format=f"%(asctime)s %(levelname)s worker.{name} %(message)s",
    )
    try:
        main(context)
    except Exception as error:
        known = isinstance(error, WorkerError) and error.reason is not None  # its message says it all
        logger.error("%s failed: %s", name, error, exc_info=not known)
        write_report(context.report, cause(name, error))
        os._exit(1)


def cause(name: str, error: Exception) -> Report:
    """The reason that the error has, if it is one of ours; what others call `reason` is no word for a status."""
    reason = error.reason if isinstance(error, WorkerError) else None
    return Report(reason or failed(name), str(error) or type(error).__name__)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, as pid 1 of a container is anyway."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def rename(*words: str) -> None:
    """What process lists show as this process's command line, as far as the old one was long."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, size = int(fields[45]), int(fields[46]) - int(fields[45])
    text = b"\0".join(word.encode() for word in words)[: size - 1]
    ctypes.memmove(start, text.ljust(size, b"\0"), size)


def write_report(fd: int, report: Report) -> None:
    """Of a message that is too long the end is left out."""
    message = report.message
    while (excess := len(line := _line(report.reason, message)) - _REPORT_BYTES) > 0:
        message = message[: -1 - excess // _WIDEST]
    os.write(fd, line)


def _line(reason: str, message: str) -> bytes:
    return json.dumps({"reason": reason, "message": message}, ensure_ascii=False).encode(errors="replace")


def read_report(fd: int) -> Report | None:
    """What the child wrote; None when it said nothing. Never waits."""
    try:
        data = os.read(fd, 65536)
    except BlockingIOError:
        return None
    if not data:
        return None
    try:
        values = json.loads(data)
        return Report(FailureReason.parse(values["reason"]), str(values["message"]))
    except (ValueError, KeyError, TypeError):
        return Report(FailureReason.UNKNOWN, data.decode(errors="replace"))
