"""How long a client will wait: the field `timeout`, the header X-Request-Timeout, or the shorter of both."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from octavo.router.jobs.generation import RequestError
from octavo.router.jobs.refusals import timed_out
from octavo.router.openai_api.known_fields import MAX_TIMEOUT_S, MIN_TIMEOUT_S

TIMEOUT = "X-Request-Timeout"
_ENDLESS = nullcontext()
QUEUE_FIRST_S = 0.05  # at the deadline the queue has the first word: it knows more of the cause


def header_s(request: Mapping[str, str]) -> float:
    """Seconds that the header of a request grants; inf without one. Raises RequestError 400."""
    given = request.get(TIMEOUT)
    if given is None:
        return math.inf
    try:
        seconds = float(given) if given.isascii() else math.nan
    except ValueError:
        seconds = math.nan
    if not MIN_TIMEOUT_S <= seconds <= MAX_TIMEOUT_S:
        message = f"the header {TIMEOUT} must be a number of seconds in {MIN_TIMEOUT_S:g}..{MAX_TIMEOUT_S:g}"
        raise RequestError(400, "invalid_request_error", "invalid_value", message)
    return seconds


def ending_at(deadline: float) -> AbstractAsyncContextManager[None]:
    """deadline: monotonic seconds. Raises RequestError 504 when the block is not done by then."""
    # Most requests have none: a timer costs as much as a short body's parsing.
    return _ENDLESS if deadline == math.inf else _ending_at(deadline)


@asynccontextmanager
async def _ending_at(deadline: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise timed_out() from None
