"""API keys: a file with one a line, and whether a request carries one of them.

Keys are kept and looked up as their HMAC under a secret drawn when the process starts: the time of a look-up does not
reveal how much of a guess was right, it does not grow with the number of keys, and no key stays in memory.
"""

import asyncio
import hmac
import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from octavo.router.errors import RouterError
from octavo.router.jobs.generation import RequestError

log = logging.getLogger(__name__)

MAX_KEYS = 10_000
MAX_KEY_CHARACTERS = 512
MAX_FILE_BYTES = 8 << 20
POLL_S = 1.0  # between two looks at the file; a mounted Secret takes a minute to change anyway
NO_KEY = bytes(32)

Stamp = tuple[int, int, int, int]


class KeysInvalid(RouterError, ValueError):
    """The file cannot be used; the message names the line, never what stands there."""


def parse_keys(data: bytes) -> tuple[str, ...]:
    """One key a line; blank lines and lines that begin with # are skipped. Raises KeysInvalid."""
    if len(data) > MAX_FILE_BYTES:
        raise KeysInvalid(f"it is larger than {MAX_FILE_BYTES} bytes")
    keys: list[str] = []
    for number, line in enumerate(data.splitlines(), 1):
        key = line.decode("ascii", "replace").strip(" \t")
        if not key or key.startswith("#"):
            continue
        if not _is_key(key):
            raise KeysInvalid(
                f"line {number} is not a key: up to {MAX_KEY_CHARACTERS} printable ASCII characters without spaces"
            )
        keys.append(key)
    if not keys:
        raise KeysInvalid("it holds no key")
    if len(keys) > MAX_KEYS:
        raise KeysInvalid(f"it holds {len(keys)} keys; at most {MAX_KEYS} are served")
    return tuple(keys)


def _is_key(key: str) -> bool:
    return len(key) <= MAX_KEY_CHARACTERS and key.isascii() and key.isprintable() and " " not in key


class Keys:
    """The keys that are valid now."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, bytes] = {}
        self.replace(keys)

    def replace(self, keys: Iterable[str]) -> None:
        digests = [self._digest(key) for key in keys]
        self._known = dict(zip(digests, digests, strict=True))

    def check(self, authorization: str | None) -> None:
        """authorization: the header of that name. Raises RequestError 401."""
        scheme, _, key = (authorization or "").partition(" ")
        digest = self._digest(key.strip(" "))
        is_known = hmac.compare_digest(self._known.get(digest, NO_KEY), digest)
        if scheme.lower() != "bearer" or not is_known:
            message = "a valid API key is needed: send it as `Authorization: Bearer KEY`"
            raise RequestError(401, "invalid_request_error", "invalid_api_key", message)

    def _digest(self, key: str) -> bytes:
        return hmac.digest(self._secret, key.encode("utf-8", "surrogateescape"), "sha256")


class KeyFile:
    """Keys that follow a file. Raises OSError and KeysInvalid when it cannot be used at first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self.keys = Keys(_read(path))

    async def follow(self) -> None:
        """Read the file again whenever it changes. One that cannot be used leaves the keys as they were."""
        while True:
            await asyncio.sleep(POLL_S)
            await asyncio.to_thread(self._look)

    def _look(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            keys = _read(self._path)
        except (OSError, KeysInvalid) as error:
            log.error("API keys: %s: %s; the keys of before stay valid", self._path, error)
            return
        self.keys.replace(keys)
        log.info("API keys: %d are valid now", len(keys))


def _read(path: Path) -> tuple[str, ...]:
    with path.open("rb") as file:
        return parse_keys(file.read(MAX_FILE_BYTES + 1))


def _stamp(path: Path) -> Stamp | None:
    """What differs when the file was written or replaced; None while there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
