"""The command lines of a local service's processes: the operator's flags, with sockets in place of ports."""

from dataclasses import dataclass
from pathlib import Path

from octavo.local.flags import Settings
from octavo.operator.specs.arguments import engine_flags, flags, queue_flags


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where one group listens."""

    folder: Path
    index: int

    def _address(self, name: str) -> str:
        return f"unix:{self.folder}/{self.index}-{name}.sock"

    @property
    def serve(self) -> str:
        return self._address("serve")

    @property
    def status(self) -> str:
        return self._address("status")

    def flags(self) -> list[str]:
        """One flag for each listener of a worker."""
        return [f"--{name}={self._address(name)}" for name in ("serve", "group", "status", "health", "metrics")]


def worker_argv(settings: Settings, sockets: Sockets) -> list[str]:
    """`octavo worker ...` of one group."""
    spec = settings.service.spec
    own = [
        ("--model", spec.model.uri),
        ("--device", settings.device),
        ("--pod-name", f"group-{sockets.index}"),
        ("--grace-period", f"{settings.drain_timeout_s:g}"),
        ("--log-level", settings.log_level),
    ]
    return ["worker", *flags(own), *sockets.flags(), *engine_flags(spec)]


def router_argv(settings: Settings, port: int, groups: list[Sockets]) -> list[str]:
    """`octavo router ...`; the routers of the spec are processes of one, on one port."""
    router = settings.service.spec.router
    own = [
        ("--http", f"{settings.host}:{port}"),
        ("--metrics", "127.0.0.1:0"),
        ("--processes", router.replicas * router.processes),
        ("--drain-delay", 0),  # nobody has to learn that this router goes
        ("--grace-period", f"{settings.drain_timeout_s:g}"),
        ("--log-level", settings.log_level),
    ]
    return ["router", *flags(own), *(f"--group={group.serve}" for group in groups), *queue_flags(settings.service.spec)]
