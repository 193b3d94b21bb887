"""Wires the fleet side together: settings in, a running dispatcher out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from octavo.router.background import background
from octavo.router.dispatch import wire
from octavo.router.dispatch.discovery import Endpoints, in_cluster
from octavo.router.dispatch.dispatch import FleetDispatcher
from octavo.router.dispatch.policies.registry import policy
from octavo.router.dispatch.rules.admission import QueueLimits
from octavo.router.dispatch.tls import dialler
from octavo.shared.policies import DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Where the groups are and how to reach them.

    groups: fixed addresses of leaders, `unix:/path` or `host:port`. endpoints: (namespace, Service) to watch instead.
    service_uid: of the resource, empty on one machine. router: this process's name in leaders' logs. policy: its name.
    """

    groups: tuple[str, ...] = ()
    endpoints: tuple[str, str] | None = None
    tls_dir: Path | None = None
    service_uid: str = ""
    router: str = ""
    bounds: QueueLimits = field(default_factory=QueueLimits)
    policy: str = DEFAULT_POLICY


@asynccontextmanager
async def running(settings: FleetSettings) -> AsyncIterator[FleetDispatcher]:
    """A dispatcher that follows its groups until the block ends. Raises ValueError for settings that cannot work."""
    dial = dialler(settings.tls_dir, settings.service_uid)
    hello = wire.hello(settings.service_uid, settings.router)
    lists_ready = settings.endpoints is not None
    dispatcher = FleetDispatcher(settings.bounds, dial, hello, policy(settings.policy), lists_ready)
    watch: asyncio.Task[None] | None = None
    if settings.endpoints is None:
        dispatcher.retarget(settings.groups)
    else:
        endpoints = Endpoints(in_cluster(), *settings.endpoints, dispatcher.retarget)
        dispatcher.list_silent_s = lambda: endpoints.silent_s
        watch = background(endpoints.run(), "watch of the endpoints")
    try:
        yield dispatcher
    finally:
        if watch is not None:
            watch.cancel()
        await dispatcher.close()
