"""`octavo router` in processes that are forked with their imports in them."""

import asyncio

from support.forked import preload
from support.spares import MODULES, ROUTER, Spares

preload(*MODULES)


def main(argv: list[str]) -> int:
    """argv: what follows `octavo router`."""
    from octavo.__main__ import main as octavo

    processes = int(argv[argv.index("--processes") + 1]) if "--processes" in argv else 1
    asyncio.create_subprocess_exec = Spares(ROUTER * processes).start  # type: ignore[assignment]
    return octavo(["router", *argv])
