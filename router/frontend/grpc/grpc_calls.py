"""Wraps each gRPC call: counts its end and sends its error.

A client that goes, or whose deadline passes, cancels the call's task, and so its jobs.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

import grpc

from octavo.router.errors import RouterError
from octavo.router.frontend.grpc import grpc_errors
from octavo.router.frontend.request_pipeline import Services, internal_error
from octavo.router.jobs.generation import RequestError
from octavo.router.metrics import CLIENT_GONE, CUT

log = logging.getLogger(__name__)

ABORT_TIMEOUT_S = 5.0  # for a client to take the status of its call

Context = grpc.aio.ServicerContext[bytes, bytes]


class StreamCut(RouterError):
    """The stream failed after its first message. error: the status that ends the call."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error.message)
        self.error = error


async def call(services: Services, endpoint: str, context: Context, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work of one call. endpoint: its name in metrics."""
    services.state.open += 1
    try:
        error = await _counted(services, endpoint, work)
        if error is not None:
            await _abort(context, error)
    finally:
        services.state.open -= 1


def deadline(context: Context) -> float:
    """The client's deadline, as monotonic seconds."""
    left = context.time_remaining()
    return math.inf if left is None else asyncio.get_running_loop().time() + left


async def _counted(services: Services, endpoint: str, work: Callable[[], Awaitable[None]]) -> RequestError | None:
    """Run the work; the error that it ended with, or None."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    code = CLIENT_GONE
    try:
        await work()
        code = "200"
        services.metrics.observe(endpoint, loop.time() - begun)
        return None
    except StreamCut as cut:
        code = CUT
        return cut.error
    except RequestError as error:
        code = str(error.status)
        return error
    except grpc.aio.InternalError as gone:  # the connection broke under a read or write
        raise asyncio.CancelledError from gone
    except Exception:  # a bug of ours: reported as status 500; the server goes on
        own = secrets.token_hex(12)
        log.exception("call %s failed", own)
        code = "500"
        return internal_error(own)
    finally:
        services.metrics.count(endpoint, code)


async def _abort(context: Context, error: RequestError) -> NoReturn:
    """Send the status; a client that does not read it within ABORT_TIMEOUT_S is left to its connection's end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ABORT_TIMEOUT_S):
            await context.abort(grpc_errors.status(error), error.message, grpc_errors.metadata(error))
    raise asyncio.CancelledError  # what gRPC takes for a call's own end; any other exception it would log
