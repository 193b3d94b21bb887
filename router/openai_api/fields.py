"""Reading one JSON object's fields by type and bound; every complaint names the field."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.router.jobs.generation import RequestError


def invalid(field: str | None, message: str, code: str = "invalid_value") -> RequestError:
    return RequestError(400, "invalid_request_error", code, message, field=field)


def unsupported(field: str, message: str) -> RequestError:
    return RequestError(400, "invalid_request_error", "unsupported_field", message, field=field[:96])


@dataclass(frozen=True, slots=True)
class Fields:
    """Typed access; absent and null are the same. `prefix` is put before names in errors."""

    values: Mapping[str, object]
    prefix: str = ""

    def get(self, name: str) -> object:
        return self.values.get(name)

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(name, "must be a string")

    def flag(self, name: str) -> bool:
        value = self.values.get(name)
        if value is None:
            return False
        if isinstance(value, bool):
            return value
        raise self._wrong(name, "must be true or false")

    def integer(self, name: str, low: int, high: int | None) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        if type(value) is not int:
            raise self._wrong(name, "must be an integer")
        if value < low or (high is not None and value > high):
            bound = f"at least {low}" if high is None else f"in {low}..{high}"
            raise self._wrong(name, f"must be {bound}, not {value}")
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "must be a number")
        if not low <= value <= high:
            raise self._wrong(name, f"must be in {low:g}..{high:g}")
        return float(value)

    def _wrong(self, name: str, what: str) -> RequestError:
        where = self.prefix + name
        return invalid(where, f"{where} {what}")
