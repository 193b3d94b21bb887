"""Kinds of settings: the value of a setting, its field in the resource, and its flag are forms of the same thing.

Without argparse: `parse` raises ValueError, whose text is the message about the flag.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

Json = Any  # Any: a field of the resource, or the value that it stands for
MAX_DURATION_S = 86_400
DURATION = "^[0-9]{1,6}(ms|s|m|h)$"  # of a field, for Python and for CEL
ANY_ORIGIN = "*"
# Of web pages that may call the API: `*` for all, or scheme, host and port as browsers send them.
ORIGIN = r"^(\*|[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?)$"


def is_origin(text: str) -> bool:
    """`*`, or an origin in lower case, without a path."""
    return re.fullmatch(ORIGIN, text) is not None


class Kind:
    """A kind whose value, field and argument are alike. The resource's schema adds bounds, argparse its choices."""

    __slots__ = ()

    def parse(self, text: str) -> Json:
        """Value of a flag's argument. Raises ValueError."""
        return text

    def from_field(self, field: Json) -> Json:
        """Value of a valid field."""
        return field

    def to_field(self, value: Json) -> Json:
        """Field that has the value."""
        return value

    def argument(self, value: Json) -> str:
        """Argument of the flag that has the value."""
        return str(value)

    def flags(self, flag: str, value: Json) -> list[str]:
        """Flags that give a router the value."""
        return [f"--{flag}={self.argument(value)}"]


@dataclass(frozen=True, slots=True)
class Integer(Kind):
    """A whole number. flag_high: bound of the flag, where it is not the field's."""

    low: int
    high: int
    flag_high: int | None = None

    def parse(self, text: str) -> int:
        high = self.flag_high or self.high
        if not text.isdecimal() or not self.low <= int(text) <= high:
            raise ValueError(f"{text!r} is not a whole number in {self.low}..{high}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Duration(Kind):
    """Seconds. The field is a text such as 500ms, 60s, 2m or 1h."""

    def parse(self, text: str) -> float:
        try:
            seconds = float(text.removesuffix("s"))
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= MAX_DURATION_S:
            raise ValueError(f"{text!r} is not a number of seconds in 0..{MAX_DURATION_S}")
        return seconds

    def from_field(self, field: Json) -> float:
        for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
            if field.endswith(unit):
                return int(field.removesuffix(unit)) * factor
        raise ValueError(f"not a duration: {field}")

    def to_field(self, value: Json) -> str:
        return f"{value:.0f}s" if math.floor(value) == value else f"{1000 * value:.0f}ms"

    def argument(self, value: Json) -> str:
        return f"{value:g}"


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of several names. max_length: bound of the field, with room for names of later versions."""

    names: tuple[str, ...]
    max_length: int


@dataclass(frozen=True, slots=True)
class Switch(Kind):
    """On or off; off unless set."""

    def flags(self, flag: str, value: Json) -> list[str]:
        return [f"--{flag}"] if value else []


@dataclass(frozen=True, slots=True)
class Origins(Kind):
    """Origins of web pages, or `*`: a list in the resource, a flag for each."""

    def parse(self, text: str) -> str:
        if not is_origin(text):
            raise ValueError(f"{text!r} is not an origin such as https://example.com, nor *")
        return text

    def from_field(self, field: Json) -> tuple[str, ...]:
        return tuple(field)

    def to_field(self, value: Json) -> list[str]:
        return list(value)

    def argument(self, value: Json) -> str:
        return ", ".join(value) or "none"

    def flags(self, flag: str, value: Json) -> list[str]:
        return [f"--{flag}={origin}" for origin in value]
