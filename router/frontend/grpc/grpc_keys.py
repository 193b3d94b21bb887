"""API keys over gRPC: the metadata `authorization: Bearer KEY`, of every method but the health service's."""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc

from octavo.router.frontend.grpc import grpc_errors
from octavo.router.frontend.keys import Keys
from octavo.router.jobs.generation import RequestError

HEALTH = "/grpc.health.v1.Health/"  # called by kubelets and load balancers, and has only a status

Request = TypeVar("Request")
Response = TypeVar("Response")


class KeyInterceptor(grpc.aio.ServerInterceptor):
    """Refuses a call without a valid key before any of its messages is read: of methods that do not exist, too.

    refused: called for each refused call.
    """

    def __init__(self, keys: Keys, refused: Callable[[RequestError], None]) -> None:
        self._keys = keys
        self._refused = refused

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Request, Response] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Request, Response] | None":
        if not handler_call_details.method.startswith(HEALTH):
            try:
                self._keys.check(_authorization(handler_call_details))
            except RequestError as error:
                self._refused(error)
                return _refusing(error)
        return await continuation(handler_call_details)


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    """None, too, when there are several."""
    found = [value for name, value in details.invocation_metadata or () if name == "authorization"]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else None


def _refusing(error: RequestError) -> "grpc.RpcMethodHandler[Any, Any]":  # Any: of whichever method
    """Ends a call of any form at once: a handler of another form than this one would wait for a message."""

    async def refuse(requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
        await context.abort(grpc_errors.status(error), error.message, grpc_errors.metadata(error))

    return grpc.stream_stream_rpc_method_handler(refuse)
