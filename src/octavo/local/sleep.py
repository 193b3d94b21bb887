"""`octavo sleep`: the groups of this machine give the memory of their devices back."""

import argparse

from octavo.local.groups_here import add_status_flag, ask_all
from octavo.proto.v1 import group_pb2


def main(argv: list[str]) -> int:
    """Returns 0 when all are asleep, 1 if one is not, 2 for wrong usage or without a group."""
    parser = argparse.ArgumentParser(
        prog="octavo sleep",
        description="Give the memory of the devices back: that of the KV cache and of weights, which on GPUs the host "
        "keeps. Running requests end before that; new ones wait in the router until `octavo wake`.",
    )
    add_status_flag(parser)
    parser.add_argument("--keep-kv", action="store_true", help="leave the KV cache on the devices")
    parser.add_argument("--now", action="store_true", help="fail when requests run, instead of waiting for their end")
    flags = parser.parse_args(argv)
    request = group_pb2.SleepRequest(keep_kv=flags.keep_kv, now=flags.now)
    return ask_all("sleep", flags.status, lambda stub: stub.Sleep(request), _describe)


def _describe(reply: group_pb2.SleepReply) -> str:
    if not reply.changed:
        return "was asleep"
    waited = f", after {reply.waited_ms / 1000:.2f} s for requests" if reply.waited_ms else ""
    return f"asleep: {reply.moved_bytes / (1 << 30):.2f} GiB given back in {reply.took_ms / 1000:.3f} s{waited}"
