"""kopf handlers: kopf watches the InferenceServices and adds the key of each event to the work queue. It does nothing
else: no finalizer, annotation, status or peering. The event's body is not used, since the caches have the object.

kopf runs in a thread with its own event loop, because it cancels every task of its loop when it stops.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from octavo.operator.cluster import kube
from octavo.operator.cluster.kopf_import import kopf
from octavo.operator.cluster.login import login

DAY_OF_RETRIES = 10_000  # a long outage of the API server must not end the watch
WATCH_S = 300  # an integer: the API server accepts nothing else
# A name for kopf's log. Its default is the user's name, which a container does not have.
IDENTITY: Any = "octavo"  # Any: kopf's own type of it is private
log = logging.getLogger(__name__)


def run(namespaces: tuple[str, ...], enqueue: Callable[[str], None], stop: threading.Event) -> None:
    """Blocks until `stop` is set. `enqueue` is called in this thread with `namespace/name`."""
    everywhere = not namespaces
    asyncio.run(
        kopf.operator(
            registry=_registry(enqueue),
            settings=_settings(),
            standalone=True,
            identity=IDENTITY,
            clusterwide=everywhere,
            namespaces=namespaces,
            stop_flag=stop,
        )
    )


def _registry(enqueue: Callable[[str], None]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    group, version = kube.SERVICE_CR.api_version.split("/")

    @kopf.on.login(registry=registry)
    def credentials(**_: Any) -> kopf.ConnectionInfo:  # Any: kopf's keywords
        return login(log)

    @kopf.on.event(group, version, kube.SERVICE_CR.plural, registry=registry)
    def changed(namespace: str | None, name: str | None, **_: Any) -> None:  # Any: kopf's keywords
        enqueue(f"{namespace}/{name}")

    return registry


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # namespaces and CRDs are not ours to watch
    settings.watching.server_timeout = WATCH_S
    settings.watching.client_timeout = WATCH_S + 15  # a stream that the server forgot to end
    settings.watching.connect_timeout = kube.CONNECT_TIMEOUT_S
    settings.watching.inactivity_timeout = kube.WATCH_SILENCE_S
    settings.networking.connect_timeout = kube.CONNECT_TIMEOUT_S
    settings.networking.request_timeout = 60.0
    settings.networking.error_backoffs = (1.0, 1.0, 2.0, 3.0, 5.0, *[8.0] * DAY_OF_RETRIES)
    return settings
