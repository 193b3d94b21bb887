"""`octavo router`: starts N processes on one port, replaces those that die, adds up their metrics, drains them.

parent --control socket--> process 0, 1, ...      each with SO_REUSEPORT on the same address
  '--- /metrics for all of them
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from octavo.router.config import Address, Config, parse_arguments
from octavo.router.family import Family
from octavo.router.scrape import serving_metrics

log = logging.getLogger("octavo.router")


def main(argv: list[str]) -> int:
    config = parse_arguments(argv)
    logging.basicConfig(
        format="%(asctime)s %(levelname)s router %(message)s", level=config.log_level, stream=sys.stderr
    )
    try:
        return asyncio.run(_run(config, argv))
    except OSError as error:
        log.error("cannot listen: %s", error)
        return 1


async def _run(config: Config, argv: Sequence[str]) -> int:
    with ExitStack() as reserved:
        http = reserved.enter_context(_reserved(config.http))
        addresses = ["--http", str(http)]
        if config.grpc is not None:
            grpc = reserved.enter_context(_reserved(config.grpc))
            addresses += ["--grpc", str(grpc)]
        family = Family([*argv, *addresses], config.processes)
        stop = asyncio.Event()
        hurry = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, lambda: hurry.set() if stop.is_set() else stop.set())
        async with serving_metrics(config.metrics, family):
            log.info("serving http://%s with %d process(es)", http, config.processes)
            if config.grpc is not None:
                log.info("serving gRPC at %s", grpc)
            await family.run(stop, hurry, config.grace_period_s)
    return 0


@contextmanager
def _reserved(address: Address) -> Iterator[Address]:
    """Holds the address without listening, so that no one else takes it and port 0 becomes a number once."""
    reserved = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
    with reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((address.host, address.port))
        yield replace(address, port=reserved.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
