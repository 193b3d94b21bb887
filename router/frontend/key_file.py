"""The file of API keys: what it holds, and keys that follow it.

    the file is missing, unreadable or holds no key     no key is valid, so every request is refused
    it is larger than 8 MiB                             no key is valid
    some lines are not keys                             the keys of the other lines are valid

No key stays valid that the file does not hold: a deleted Secret, or one that was spoilt, revokes its keys.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.router.frontend.keys import Keys
from octavo.router.metrics import MetricReading
from octavo.shared.key_problem import KeyProblem

log = logging.getLogger(__name__)

MAX_KEYS = 10_000
MAX_KEY_CHARACTERS = 512
MAX_FILE_BYTES = 8 << 20
POLL_S = 1.0  # between two looks at the file; a mounted Secret takes a minute to change anyway
SHOWN_LINES = 5  # of the lines that are not keys

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class KeyFileContent:
    """The keys of a file, without its unusable lines. message: names what is wrong with the file, never what it holds.

    unusable: lines that are not keys; 1 for a file that is missing, unreadable or without a key.
    """

    keys: tuple[str, ...]
    problem: KeyProblem | None = None
    message: str = ""
    unusable: int = 0


def parse_keys(data: bytes) -> KeyFileContent:
    """One key a line; blank lines and lines that begin with # are skipped."""
    if len(data) > MAX_FILE_BYTES:
        return _without_keys(KeyProblem.UNUSABLE, f"it is larger than {MAX_FILE_BYTES} bytes")
    lines = ((number, line.decode("ascii", "replace").strip(" \t")) for number, line in enumerate(data.splitlines(), 1))
    given = [(number, line) for number, line in lines if line and not line.startswith("#")]
    keys = [key for _, key in given if _is_key(key)]
    spoilt = [number for number, key in given if not _is_key(key)]
    if not given:
        return _without_keys(KeyProblem.UNUSABLE, "it holds no key")
    found = []
    if spoilt:
        found.append(f"{_lines(spoilt)}: up to {MAX_KEY_CHARACTERS} printable ASCII characters without spaces")
    if len(keys) > MAX_KEYS:
        found.append(f"it holds {len(keys)} keys; the first {MAX_KEYS} are valid")
    unusable = len(spoilt) + max(0, len(keys) - MAX_KEYS)
    return KeyFileContent(
        tuple(keys[:MAX_KEYS]), KeyProblem.UNUSABLE if found else None, "; ".join(found), unusable=unusable
    )


def read_keys(path: Path) -> KeyFileContent:
    """The content of a file, also of one that cannot be read."""
    try:
        with path.open("rb") as file:
            return parse_keys(file.read(MAX_FILE_BYTES + 1))
    except FileNotFoundError:
        return _without_keys(KeyProblem.MISSING, "there is no such file")
    except OSError as error:
        return _without_keys(KeyProblem.UNUSABLE, error.strerror or str(error))


def _without_keys(problem: KeyProblem, message: str) -> KeyFileContent:
    return KeyFileContent((), problem, message, unusable=1)


def _lines(numbers: list[int]) -> str:
    """Such as: line 2 is not a key; lines 2, 3 and 7 more are not keys."""
    if len(numbers) == 1:
        return f"line {numbers[0]} is not a key"
    shown = ", ".join(map(str, numbers[:SHOWN_LINES]))
    more = f" and {len(numbers) - SHOWN_LINES} more" if len(numbers) > SHOWN_LINES else ""
    return f"lines {shown}{more} are not keys"


def _is_key(key: str) -> bool:
    return len(key) <= MAX_KEY_CHARACTERS and key.isascii() and key.isprintable() and " " not in key


class KeyFile:
    """Keys that follow a file. keys: without any while the file is missing or unusable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = None
        self._content = KeyFileContent(())
        self.keys = Keys(())
        self._read(_stamp(path))

    @property
    def problem(self) -> tuple[KeyProblem, str] | None:
        """What is wrong with the file now, and the words for it."""
        found = self._content.problem
        return None if found is None else (found, self._content.message)

    def to_json(self) -> dict[str, object]:
        """As in octavo.shared.key_problem. It says nothing of the keys themselves."""
        page: dict[str, object] = {"valid": self.keys.count > 0}
        if self.problem is not None:
            page["problem"], page["message"] = self.problem
        return page

    def readings(self) -> Iterator[MetricReading]:
        yield "octavo_router_api_keys", "API keys that are valid, in sum over processes", False, self.keys.count
        text = "Lines that are not API keys, or 1 for a missing or empty file of keys, in sum over processes"
        yield "octavo_router_unusable_api_keys", text, False, self._content.unusable

    async def follow(self) -> None:
        """Read the file again whenever it changes, and at each look while it cannot be read."""
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await asyncio.to_thread(self._look)
            except Exception:  # whatever it is, revoked keys must not stay valid
                log.exception("API keys: %s could not be read; every request is refused until it can", self._path)
                self._content = _without_keys(KeyProblem.UNUSABLE, "it could not be read")
                self.keys.replace(())

    def _look(self) -> None:
        stamp = _stamp(self._path)
        if stamp != self._stamp or (self._content.problem is not None and not self._content.keys):
            self._read(stamp)

    def _read(self, stamp: Stamp | None) -> None:
        before, self._stamp = self._content, stamp
        self._content = read_keys(self._path)
        if self._content == before:
            return
        self.keys.replace(self._content.keys)
        state = f"{self.keys.count} valid" if self.keys.count else "none is valid, and every request is refused"
        if self._content.problem is not None:
            log.error("API keys: %s: %s; %s", self._path, self._content.message, state)
        else:
            log.info("API keys: %s", state)


def _stamp(path: Path) -> Stamp | None:
    """What differs when the file was written or replaced; None while there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
