"""The groups of this machine, or of the pod that this runs in, by the sockets of their supervisors."""

import argparse
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from octavo.errors import UsageError
from octavo.proto.v1 import group_pb2, group_pb2_grpc

_SOCKETS = ("octavo-run-*/*-0-status.sock", "octavo-worker-*/*-0-status.sock")  # of pod 0 of each group
_MEMORY_DISK = "/dev/shm"  # where a pod whose root is read-only has them

Ask = Callable[[group_pb2_grpc.GroupSleepStub], group_pb2.SleepReply]
Describe = Callable[[group_pb2.SleepReply], str]


def add_status_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--status",
        action="append",
        metavar="ADDRESS",
        help="of a group's supervisor, unix:/path; more than once for several (default: all groups that run here)",
    )


def ask_all(command: str, given: list[str] | None, ask: Ask, describe: Describe) -> int:
    """Ask each group, and print what has become of it; 1 if one has not done it, 2 if there is none."""
    import grpc

    from octavo.shared.grpc_options import OPTIONS

    try:
        addresses = _addresses(given)
    except UsageError as error:
        print(f"octavo {command}: {error}", file=sys.stderr)
        return 2
    code = 0
    for address in addresses:
        with grpc.insecure_channel(address, options=OPTIONS) as channel:
            try:
                print(f"{address}: {describe(ask(group_pb2_grpc.GroupSleepStub(channel)))}", flush=True)
            except grpc.RpcError as error:
                assert isinstance(error, grpc.Call)
                print(f"octavo {command}: {address}: {error.details()}", file=sys.stderr)
                code = 1
    return code


def _addresses(given: list[str] | None) -> list[str]:
    found = given or sorted(f"unix:{path}" for path in _sockets() if _listens(path))
    if not found:
        raise UsageError("no group runs here: start one by `octavo run`, or name its socket by --status")
    return found


def _sockets() -> Iterator[Path]:
    try:
        folders = [tempfile.gettempdir(), _MEMORY_DISK]
    except FileNotFoundError:
        folders = [_MEMORY_DISK]
    for folder in dict.fromkeys(folders):
        for pattern in _SOCKETS:
            yield from Path(folder).glob(pattern)


def _listens(path: Path) -> bool:
    """It is not what a killed process has left, nor another user's."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
