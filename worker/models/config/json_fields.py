"""Fields of config.json, read by name and checked one by one."""

import sys
from typing import Any, NoReturn

from octavo.worker.errors import WorkerError

Json = dict[str, Any]  # what a JSON object may hold
MOST = 2**31 - 1
LARGEST = sys.float_info.max  # JSON has whole numbers beyond it


class FieldInvalid(WorkerError, ValueError):
    """A field of config.json that cannot be served; the message names it."""


def whole(
    raw: Json, key: str, default: int | None = None, *, parent: str = "", least: int = 1, most: int = MOST
) -> int:
    """A whole number of at least `least`; null counts as absent. parent: of the object, for the message."""
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        wrong(f"{parent}.{key}" if parent else key, value, f"it must be a whole number in {least}..{most}")
    return value


def number(raw: Json, key: str, default: float | None = None, *, parent: str = "") -> float:
    """A finite number above 0; null counts as absent."""
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= LARGEST:
        wrong(f"{parent}.{key}" if parent else key, value, "it must be a number above 0")
    return float(value)


def flag(raw: Json, key: str) -> bool:
    """false when it is absent or null."""
    value = raw.get(key)
    if value is not None and not isinstance(value, bool):
        wrong(key, value, "it must be true or false")
    return bool(value)


def wrong(key: str, value: object, why: str) -> NoReturn:
    shown = "missing" if value is None else "an object" if isinstance(value, dict) else repr(value)
    raise FieldInvalid(f"{key}: {shown}; {why}")
