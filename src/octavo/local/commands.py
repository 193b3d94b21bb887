"""The command lines of a local service's processes: the operator's flags, with sockets in place of ports."""

from dataclasses import dataclass, replace
from pathlib import Path

from octavo.local.flags import Settings
from octavo.operator.specs.arguments import engine_flags, flags, group_flags, router_flags
from octavo.worker.devices.memory import threads


@dataclass(frozen=True, slots=True)
class Sockets:
    """Unix sockets of one pod of a group; routers and `octavo run` connect to pod 0."""

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
        """Flags of a worker with the address of each listener."""
        return [f"--{name}={self._address(name)}" for name in ("serve", "group", "status", "health", "metrics")]

    def peer(self, pod: int) -> str:
        """Address of another pod of the same group, for --peers."""
        return replace(self, pod=pod)._address("group")


def worker_argv(settings: Settings, sockets: Sockets) -> list[str]:
    """Arguments of `octavo` for the worker of one pod."""
    spec = settings.service.spec
    own: list[tuple[str, object]] = [
        ("--model", spec.model.uri),
        ("--device", settings.device),
        ("--pod-name", pod_name(settings, sockets)),
        ("--grace-period", f"{settings.drain_timeout_s:g}"),
        ("--log-level", settings.log_level),
    ]
    if spec.pods * spec.replicas > 1:  # pods share this machine; the default would use all cores in each
        own.append(("--threads", threads(None, ranks=spec.replicas * spec.pods * spec.accelerator.per_pod)))
    if spec.pods > 1:
        own += [
            ("--pod-index", sockets.pod),
            ("--peers", ",".join(sockets.peer(pod) for pod in range(spec.pods))),
        ]
    return ["worker", *flags(own), *sockets.flags(), *group_flags(spec), *engine_flags(spec)]


def pod_name(settings: Settings, sockets: Sockets) -> str:
    """Name of the pod in logs and the status."""
    group = f"group-{sockets.group}"
    return f"{group}-{sockets.pod}" if settings.service.spec.pods > 1 else group


def router_argv(settings: Settings, port: int, grpc_port: int | None, groups: list[Sockets]) -> list[str]:
    """Arguments of `octavo` for the router: all routers of the spec are processes of one, on one port per API."""
    spec, router = settings.service.spec, settings.service.spec.router
    own: list[tuple[str, object]] = [
        ("--http", f"{settings.host}:{port}"),
        ("--grpc", None if grpc_port is None else f"{settings.host}:{grpc_port}"),
        ("--metrics", "127.0.0.1:0"),
        ("--drain-delay", 0),  # no load balancer has to stop sending requests first
        ("--grace-period", f"{settings.drain_timeout_s:g}"),
        ("--log-level", settings.log_level),
        ("--api-keys-file", settings.keys_file),
    ]
    own += [("--group", group.serve) for group in groups]
    all_processes = replace(router.settings, processes=router.replicas * router.settings.processes)
    return ["router", *flags(own), *router_flags(spec.model, all_processes)]
