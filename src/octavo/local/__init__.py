"""`octavo run`: a service on one machine, with no cluster."""

import sys


def main(argv: list[str]) -> int:
    """0 after a drain, 1 when the model cannot be served, 2 for wrong usage."""
    from octavo.local import flags, service

    try:
        settings = flags.parse_args(argv)
    except flags.UsageError as error:
        print(f"octavo run: {error}", file=sys.stderr)
        return 2
    return service.run(settings)
