"""The front door: `octavo COMMAND ...`. A component is imported only when it is asked for.

octavo run [MODEL]        serve a model on this machine
octavo sleep | wake       have the groups of this machine give their devices' memory back, or serve again
octavo plan -f FILE       print the objects that the operator would create, and why
octavo crd                print the custom resource definition
octavo bench COMMAND      measure a server: serve, throughput, latency
octavo operator | router | worker    the components, as the images start them
"""

import signal
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from octavo import __version__
from octavo.shared.parent import end_with_parent

# command: (module with main(argv) -> exit code, extra that brings its dependencies)
COMMANDS = {
    "run": ("octavo.local", "router,worker"),
    "sleep": ("octavo.local.sleep", "worker"),
    "wake": ("octavo.local.wake", "worker"),
    "plan": ("octavo.operator.plan_cli", ""),
    "crd": ("octavo.operator.api.crd", ""),
    "bench": ("octavo.bench", "bench"),
    "operator": ("octavo.operator.main", "operator"),
    "router": ("octavo.router.main", "router"),
    "worker": ("octavo.worker.main", "worker"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command; 2 for wrong usage."""
    end_with_parent()
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help", "help"):
        print(__doc__.strip())
        return 0 if args else 2
    if args[0] in ("-V", "--version", "version"):
        print(f"octavo {__version__}")
        return 0
    if args[0] not in COMMANDS:
        print(f"octavo: unknown command {args[0]!r}; one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    # The kernel ignores signals without a handler for pid 1 of a container: SIGTERM during the imports would be lost.
    signal.signal(signal.SIGTERM, _end)
    return _load(args[0])(args[1:])


def _end(number: int, _frame: object) -> None:
    """Handler of SIGTERM until the component installs its own."""
    raise SystemExit(128 + number)


def _load(command: str) -> Callable[[list[str]], int]:
    module, extra = COMMANDS[command]
    try:
        run: Callable[[list[str]], int] = import_module(module).main
    except ModuleNotFoundError as missing:
        name = (missing.name or "").split(".")[0]
        if name == "octavo" or (name and find_spec(name) is not None):
            raise
        print(
            f"octavo {command}: the Python package {name!r} is missing; install octavo[{extra}]",
            file=sys.stderr,
        )
        raise SystemExit(1) from missing
    return run


if __name__ == "__main__":
    sys.exit(main())
