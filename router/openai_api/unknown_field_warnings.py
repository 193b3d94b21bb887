"""Unknown fields, reported in a header of the answer: `X-Octavo-Warning: unknown fields ignored: "foo", "bar"`."""

import re
from collections.abc import Mapping, Sequence

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.fields import unsupported

WARNING = "X-Octavo-Warning"
STRICT = "X-Octavo-Strict"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def warning(unknown: Sequence[str]) -> dict[str, str]:
    """The header, or none. Names come from the client: what could end a header or a quotation is replaced."""
    if not unknown:
        return {}
    names = ", ".join(f'"{_UNSAFE.sub("?", name)}"' for name in unknown)
    return {WARNING: f"unknown fields ignored: {names}"}


def check_strict(unknown: Sequence[str], router_is_strict: bool, request: Mapping[str, str]) -> None:
    """request: headers, of which one may ask for strictness. Raises RequestError 400 naming the first unknown field."""
    asked = request.get(STRICT, "").lower()
    if asked not in ("", "true", "false"):
        message = f"the header {STRICT} must be true or false"
        raise RequestError(400, "invalid_request_error", "invalid_value", message)
    if unknown and (router_is_strict or asked == "true"):
        raise unsupported(unknown[0], f"unknown field {unknown[0]!r}: remove it")
