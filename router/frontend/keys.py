"""API keys: whether a request carries a valid one.

Keys are kept and looked up as their HMAC under a secret drawn when the process starts: the time of a look-up does not
reveal how much of a guess was right, it does not grow with the number of keys, and no key stays in memory.
"""

import hmac
import secrets
from collections.abc import Iterable

from octavo.router.jobs.generation import RequestError
from octavo.router.jobs.refusals import keys_unavailable

NO_KEY = bytes(32)


class Keys:
    """The keys that are valid now. While there is none, every request is refused."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, bytes] = {}
        self.replace(keys)

    @property
    def count(self) -> int:
        return len(self._known)

    def replace(self, keys: Iterable[str]) -> None:
        digests = [self._digest(key) for key in keys]
        self._known = dict(zip(digests, digests, strict=True))

    def check(self, authorization: str | None) -> None:
        """authorization: the header of that name. Raises RequestError: 401, or 503 while no key is valid."""
        if not self._known:
            raise keys_unavailable()
        scheme, _, key = (authorization or "").partition(" ")
        digest = self._digest(key.strip(" "))
        is_known = hmac.compare_digest(self._known.get(digest, NO_KEY), digest)
        if scheme.lower() != "bearer" or not is_known:
            message = "a valid API key is needed: send it as `Authorization: Bearer KEY`"
            raise RequestError(401, "invalid_request_error", "invalid_api_key", message)

    def _digest(self, key: str) -> bytes:
        return hmac.digest(self._secret, key.encode("utf-8", "surrogateescape"), "sha256")
