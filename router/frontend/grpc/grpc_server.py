"""The gRPC side of one router process: its listener, and the services behind it.

Several processes listen on one port; the kernel gives each connection to one of them. So connections live for minutes,
not for ever: a client that reconnects may reach a router that started later.
"""

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from octavo.router.frontend.address import Address
from octavo.router.frontend.body_buffer import MAX_BODY_BYTES
from octavo.router.frontend.grpc.grpc_health import Health
from octavo.router.frontend.grpc.grpc_keys import KeyInterceptor
from octavo.router.frontend.grpc.grpc_service import SERVICE, Inference
from octavo.router.frontend.request_pipeline import Services
from octavo.router.jobs.generation import RequestError

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
FLUSH_S = 1.0  # for the last bytes of calls that have ended

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 1),
    # What HTTP takes too; above it the call ends with RESOURCE_EXHAUSTED. Answers are as long as was asked for.
    ("grpc.max_receive_message_length", MAX_BODY_BYTES),
    ("grpc.max_send_message_length", -1),
    # A client that vanished without a word is found within 30 s, and its requests are cancelled.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # a minute by default, which would win over the one above
    ("grpc.http2.max_pings_without_data", 0),
    # Clients may ask in their turn, each 10 s and also between calls (less a second, for timers that are early).
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 9_000),
    # Then the client is asked to reconnect; calls under way go on to their end.
    ("grpc.max_connection_age_ms", 300_000),
    # Of one connection; further calls of it wait in its client.
    ("grpc.max_concurrent_streams", 1_000),
    # A connection that never speaks HTTP/2 ends after this.
    ("grpc.server_handshake_timeout_ms", 60_000),
)


class GrpcServer:
    """Serves between `start` and `stop`. Raises OSError when it cannot listen.

    most: connections that may be open, and calls under way on all of them: as many as HTTP's connections can have. A
    further connection is closed at once, a further call ends with RESOURCE_EXHAUSTED.
    """

    def __init__(self, services: Services, address: Address, most: int) -> None:
        self._stopping = asyncio.Event()
        self._server = grpc.aio.server(
            options=(*OPTIONS, ("grpc.max_allowed_incoming_connections", most)),
            interceptors=_interceptors(services),
            maximum_concurrent_rpcs=most,
        )
        self._server.add_generic_rpc_handlers((Inference(services).handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(Health(services, (SERVICE, HEALTH), self._stopping), self._server)
        reflection.enable_server_reflection((SERVICE, HEALTH, reflection.SERVICE_NAME), self._server)
        try:
            self._server.add_insecure_port(str(address))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error

    async def start(self) -> None:
        await self._server.start()

    async def refuse(self, grace_s: float) -> None:
        """Close the listener and take no more calls; return when the running calls have ended, or `grace_s` is over."""
        self._stopping.set()
        await self._server.stop(grace_s)

    async def stop(self) -> None:
        """Cut what is left, but for what has ended already."""
        await self.refuse(FLUSH_S)


def _interceptors(services: Services) -> list[grpc.aio.ServerInterceptor]:
    def refused(error: RequestError) -> None:
        services.metrics.count("other", str(error.status))

    return [] if services.keys is None else [KeyInterceptor(services.keys, refused)]
