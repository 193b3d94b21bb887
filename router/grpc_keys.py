"""API keys over gRPC: the metadata `authorization: Bearer KEY`, of every method but the health service's."""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc

from octavo.router.generation import RequestError
from octavo.router.keys import Keys

HEALTH = "/grpc.health.v1.Health/"  # asked by kubelets and load balancers, and tells a status only

Request = TypeVar("Request")
Response = TypeVar("Response")


class KeyInterceptor(grpc.aio.ServerInterceptor):
    """Refuses a call without a valid key before any of its messages is read."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Request, Response] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Request, Response] | None":
        if not handler_call_details.method.startswith(HEALTH):
            try:
                self._keys.check(_authorization(handler_call_details))
            except RequestError as error:
                return _refusing(error.message)
        return await continuation(handler_call_details)


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    """None, too, when there are several."""
    found = [value for name, value in details.invocation_metadata or () if name == "authorization"]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else None


def _refusing(message: str) -> "grpc.RpcMethodHandler[Any, Any]":  # Any: of whichever method
    """Ends a call of any form, whatever would have come."""

    async def refuse(request: object, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)

    return grpc.unary_unary_rpc_method_handler(refuse)
