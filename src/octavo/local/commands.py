"""The command lines of a local service's processes: the operator's flags, with sockets in place of ports."""

from dataclasses import dataclass, replace
from pathlib import Path

from octavo.local.flags import Settings
from octavo.operator.specs.arguments import engine_flags, flags, group_flags, router_flags
from octavo.worker.memory import threads


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where one pod of a group listens; pod 0 is the one that routers and `octavo run` talk to."""

    folder: Path
    group: int
    pod: int = 0

    def _address(self, name: str) -> str:
        return f"unix:{self.folder}/{self.group}-{self.pod}-{name}.sock"

    @property
    def serve(self) -> str:
        return self._address("serve")

    @property
    def status(self) -> str:
        return self._address("status")

    def flags(self) -> list[str]:
        """One flag for each listener of a worker."""
        return [f"--{name}={self._address(name)}" for name in ("serve", "group", "status", "health", "metrics")]

    def peer(self, pod: int) -> str:
        """Where the ranks of a pod of the same group are found."""
        return replace(self, pod=pod)._address("group")


def worker_argv(settings: Settings, sockets: Sockets) -> list[str]:
    """`octavo worker ...` of one pod."""
    spec = settings.service.spec
    own: list[tuple[str, object]] = [
        ("--model", spec.model.uri),
        ("--device", settings.device),
        ("--pod-name", pod_name(settings, sockets)),
        ("--grace-period", f"{settings.drain_timeout_s:g}"),
        ("--log-level", settings.log_level),
    ]
    if spec.pods * spec.replicas > 1:  # they share this machine: each pod would take all of it
        own.append(("--threads", threads(None, ranks=spec.replicas * spec.pods * spec.accelerator.per_pod)))
    if spec.pods > 1:
        own += [
            ("--pod-index", sockets.pod),
            ("--peers", ",".join(sockets.peer(pod) for pod in range(spec.pods))),
        ]
    return ["worker", *flags(own), *sockets.flags(), *group_flags(spec), *engine_flags(spec)]


def pod_name(settings: Settings, sockets: Sockets) -> str:
    """As the status names it."""
    group = f"group-{sockets.group}"
    return f"{group}-{sockets.pod}" if settings.service.spec.pods > 1 else group


def router_argv(settings: Settings, port: int, grpc_port: int | None, groups: list[Sockets]) -> list[str]:
    """`octavo router ...`; the routers of the spec are processes of one, on one port of each API."""
    router = settings.service.spec.router
    own: list[tuple[str, object]] = [
        ("--http", f"{settings.host}:{port}"),
        ("--grpc", None if grpc_port is None else f"{settings.host}:{grpc_port}"),
        ("--metrics", "127.0.0.1:0"),
        ("--processes", router.replicas * router.processes),
        ("--drain-delay", 0),  # nobody has to learn that this router goes
        ("--grace-period", f"{settings.drain_timeout_s:g}"),
        ("--log-level", settings.log_level),
    ]
    if settings.keys_file is not None:
        own.append(("--api-keys-file", settings.keys_file))
    places = (f"--group={group.serve}" for group in groups)
    return ["router", *flags(own), *places, *router_flags(settings.service.spec)]
