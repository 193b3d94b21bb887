"""Cross-origin requests: which web pages may call this API from a browser. None unless an origin was allowed. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from octavo.shared.setting_kinds import ANY_ORIGIN

EXPOSED = "X-Request-Id, X-Octavo-Warning, X-Should-Retry, Retry-After"
MAX_AGE_S = 600  # for which a browser remembers a preflight
_HEADER_NAMES = re.compile(r"[A-Za-z0-9, _-]{1,2048}")


@dataclass(frozen=True, slots=True)
class Cors:
    """origins: allowed ones. With none of them no header is ever added."""

    origins: frozenset[str] = frozenset()

    def headers(self, request: Mapping[str, str]) -> dict[str, str]:
        """What every answer carries to let a page of an allowed origin read it. request: headers."""
        if not self.origins:
            return {}
        if ANY_ORIGIN in self.origins:
            return {"Access-Control-Allow-Origin": ANY_ORIGIN, "Access-Control-Expose-Headers": EXPOSED}
        origin = request.get("Origin")
        if origin not in self.origins or origin is None:
            return {"Vary": "Origin"}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": EXPOSED,
            "Vary": "Origin",
        }

    def preflight(self, method: str, request: Mapping[str, str]) -> dict[str, str] | None:
        """What more answers a browser that asks whether it may send; None when this is no such question, or it may not.

        A preflight carries no key, and its answer has these headers only.
        """
        asks = method == "OPTIONS" and "Access-Control-Request-Method" in request
        if not asks or "Access-Control-Allow-Origin" not in self.headers(request):
            return None
        # The official clients send headers that describe themselves, more with each version: all requested ones are
        # allowed.
        requested = request.get("Access-Control-Request-Headers", "")
        return {
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": requested
            if _HEADER_NAMES.fullmatch(requested)
            else "Authorization, Content-Type",
            "Access-Control-Max-Age": str(MAX_AGE_S),
        }
