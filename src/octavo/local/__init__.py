"""`octavo run`: a service on one machine, with no cluster."""

import sys


def main(argv: list[str]) -> int:
    """0 after a drain, 1 when the model cannot be served, 2 for wrong usage."""
    from octavo.local import flags, service
    from octavo.worker.models.checkpoint import ModelError, servable
    from octavo.worker.models.resolve import resolve

    try:
        settings = flags.parse_args(argv)
        servable(resolve(settings.service.spec.model.uri))  # the bundled model is converted here, with its bar
    except (flags.UsageError, ModelError) as error:
        print(f"octavo run: {error}", file=sys.stderr)
        return 2
    return service.run(settings)
