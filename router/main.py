"""`octavo router`: starts N processes on one port, replaces processes that end, adds up their metrics, drains them.

parent --control socket--> process 0, 1, ...      each with SO_REUSEPORT on the same address
  '--- /metrics for all of them
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from octavo.router.process.config import Config, parse_arguments
from octavo.router.process.metrics_endpoint import serving_metrics
from octavo.router.process.ports import EXIT_CODE, CannotListen, reserved
from octavo.router.process.process_manager import ProcessManager

log = logging.getLogger("octavo.router")


def main(argv: list[str]) -> int:
    config = parse_arguments(argv)
    logging.basicConfig(
        format="%(asctime)s %(levelname)s router %(message)s", level=config.log_level, stream=sys.stderr
    )
    try:
        return asyncio.run(_run(config, argv))
    except CannotListen as error:
        log.error("%s", error)
        return EXIT_CODE


async def _run(config: Config, argv: Sequence[str]) -> int:
    with ExitStack() as held:
        http = held.enter_context(reserved("--http", config.http))
        addresses = ["--http", str(http)]
        if config.grpc is not None:
            grpc = held.enter_context(reserved("--grpc", config.grpc))
            addresses += ["--grpc", str(grpc)]
        manager = ProcessManager([*argv, *addresses], config.settings.processes)
        stop = asyncio.Event()
        hurry = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, lambda: hurry.set() if stop.is_set() else stop.set())
        async with serving_metrics(config.metrics, manager):
            log.info("serving http://%s with %d process(es)", http, config.settings.processes)
            if config.grpc is not None:
                log.info("serving gRPC at %s", grpc)
            await manager.run(stop, hurry, config.grace_period_s)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
