"""`octavo wake`: the groups of this machine have the memory of their devices again, and serve."""

import argparse

from octavo.local.groups_here import add_status_flag, ask_all
from octavo.proto.v1 import group_pb2


def main(argv: list[str]) -> int:
    """Returns 0 when all serve, 1 if one does not, 2 for wrong usage or without a group."""
    parser = argparse.ArgumentParser(prog="octavo wake", description="End the sleep of groups: see `octavo sleep`.")
    add_status_flag(parser)
    flags = parser.parse_args(argv)
    return ask_all("wake", flags.status, lambda stub: stub.Wake(group_pb2.WakeRequest()), _describe)


def _describe(reply: group_pb2.SleepReply) -> str:
    if not reply.changed:
        return "was awake"
    return f"awake: {reply.moved_bytes / (1 << 30):.2f} GiB taken again in {reply.took_ms / 1000:.3f} s"
