"""Kubernetes quantities (500m, 1Gi, 1e3) as exact numbers."""

import re
from fractions import Fraction

PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?$"

_SUFFIXES = {
    "": Fraction(1),
    **{
        letter: Fraction(10) ** power
        for letter, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{letter}i": Fraction(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
}
_SHAPE = re.compile(PATTERN.removesuffix("$") + r"\Z")


def quantity(value: object) -> Fraction | None:
    """The number that a quantity denotes; None if it is no quantity."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _SHAPE.match(str(value))
    if not match:
        return None
    number, suffix = match.group(1), match.group(3) or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix[1:] != "i":
        return Fraction(number) * Fraction(10) ** int(suffix[1:])
    return Fraction(number.rstrip(".")) * _SUFFIXES[suffix]
