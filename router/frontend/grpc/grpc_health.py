"""grpc.health.v1: SERVING exactly while /readyz is 200, for the whole server ("") and for each of its service_names."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from octavo.router.frontend.request_pipeline import Services

WATCH_S = 0.2  # between two checks of a Watch call

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

Message = Any  # Any: the package has no types
Context = grpc.aio.ServicerContext[Message, Message]


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package has no types
    """service_names: names beside "". stopping: set when no stream may keep the server from its end."""

    def __init__(self, services: Services, service_names: Collection[str], stopping: asyncio.Event) -> None:
        self._services = services
        self._names = {"", *service_names}
        self._stopping = stopping

    async def Check(self, request: Message, context: Context) -> Message:
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return self._status(request.service)

    async def List(self, request: Message, context: Context) -> Message:
        return health_pb2.HealthListResponse(statuses={name: self._status(name) for name in self._names})

    async def Watch(self, request: Message, context: Context) -> AsyncIterator[Message]:
        """The status now, and each change of it. A name that is not served stays unknown."""
        last = None
        while not self._stopping.is_set():
            now = self._status(request.service)
            if now != last:
                yield now
                last = now
            await asyncio.sleep(WATCH_S)

    def _status(self, service: str) -> Message:
        if service not in self._names:
            return health_pb2.HealthCheckResponse(status=UNKNOWN)
        return health_pb2.HealthCheckResponse(status=SERVING if self._services.ready else NOT_SERVING)
