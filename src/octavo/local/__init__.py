"""`octavo run`: a service on one machine, with no cluster."""

import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Returns 0 after a drain, 1 if the model cannot be served, 2 for wrong usage."""
    from octavo.errors import UsageError
    from octavo.local import commands, flags, service
    from octavo.worker.devices import gpu
    from octavo.worker.errors import ConfigError
    from octavo.worker.main import parse
    from octavo.worker.models.folder.checkpoint import ModelError, servable
    from octavo.worker.models.sources.resolve import resolve
    from octavo.worker.supervisor.check_config import check_fit

    try:
        settings = flags.parse_args(argv)
        worker = parse(commands.worker_argv(settings, commands.Sockets(Path("/"), 0))[1:])
        gpu.check(settings.device, worker.layout.ranks)
        # The bundled model is converted here, with a progress bar.
        check_fit(worker, servable(resolve(settings.service.spec.model.uri)))
    except (UsageError, ModelError, ConfigError) as error:
        print(f"octavo run: {error}", file=sys.stderr)
        return 2
    return service.run(settings)
