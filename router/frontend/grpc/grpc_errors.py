"""A RequestError as a gRPC status and trailing metadata.

The status says what kind of failure it is; trailing metadata has what HTTP's error object has beside the message, and
`retry-after` (seconds). `grpc-retry-pushback-ms` tells clients that retry by themselves when to, or (-1) not to
(gRFC A6).
"""

import math
from collections.abc import Mapping

import grpc

from octavo.router.jobs.generation import RequestError

ERROR_TYPE = "octavo-error-type"
ERROR_CODE = "octavo-error-code"
ERROR_FIELD = "octavo-error-field"
RETRY_AFTER = "retry-after"
PUSHBACK = "grpc-retry-pushback-ms"

STATUSES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}

Metadata = tuple[tuple[str, str], ...]


def status(error: RequestError) -> grpc.StatusCode:
    return STATUSES.get(error.status, grpc.StatusCode.UNKNOWN)


def metadata(error: RequestError) -> Metadata:
    """Trailing metadata."""
    found = [(ERROR_TYPE, error.type), (ERROR_CODE, error.code)]
    if error.field is not None:
        found.append((ERROR_FIELD, _printable(error.field)))
    if error.retry_after is not None:
        seconds = max(1, math.ceil(error.retry_after))
        found += [(RETRY_AFTER, str(seconds)), (PUSHBACK, str(1000 * seconds))]
    elif error.final:
        found.append((PUSHBACK, "-1"))
    return tuple(found)


def _printable(text: str) -> str:
    """Metadata holds ASCII only, and one character outside it would fail the call in another way."""
    return "".join(character if " " <= character <= "~" else "?" for character in text)
