"""How a request's tokens are drawn: one type on the whole way from a client's body to a device.

    JSON, gRPC -> router -> Submit -> leader -> ring -> core -> ring -> rank -> sampler

Between processes it is the message SamplingParams of engine.proto, whose fields have the same names; the leader makes
its bytes once, and they pass through the rings unchanged. The names are the HTTP API's where clients set a field. What
else must be known of a field stands beside it: its range, whether a device must be able to serve it (a feature, of the
field's name), and whether it changes the logits before the draw.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from octavo.errors import OctavoError
from octavo.proto.v1 import engine_pb2

T = TypeVar("T")


class InvalidSamplingParams(OctavoError, ValueError):
    """Values that no message can hold, or bytes that are none. field: which one is at fault; empty: unknown."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class Range(NamedTuple):
    """Both ends belong to it."""

    low: float
    high: float


def _feature(default: T, bounds: Range | None = None, logits: bool = False) -> T:
    """A field that a device may be unable to serve. bounds: of its number or numbers. logits: it changes them."""
    made: Any = field(default=default, metadata={"feature": True, "bounds": bounds, "logits": logits})
    return made  # type: ignore[no-any-return]  # dataclass() makes a field of it


class _Encoded:
    """Bytes once they are known; no field, so that a changed copy starts without."""

    __slots__ = ("_bytes",)
    _bytes: bytes


@dataclass(frozen=True, slots=True, repr=False)
class SamplingParams(_Encoded):
    """Each default changes nothing; temperature 0 is greedy, top_k 0 and top_p 1 are off. Numbers are float32 on wires.

    seed: of a counter-based generator. logit_bias: (id, what is added to its logit). allowed_token_ids: no others are
    drawn; none: all are. bad_words: ids of each; the last is not drawn after the others. forbidden: ids that are not
    drawn before min_tokens are generated. logprobs, prompt_logprobs: how many of the likeliest tokens are reported
    beside each one; None: no log-probabilities.
    """

    temperature: float = field(default=0.0, metadata={"bounds": Range(0.0, sys.float_info.max)})
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = _feature(0.0, Range(0.0, 1.0))
    presence_penalty: float = _feature(0.0, Range(-2.0, 2.0), logits=True)
    frequency_penalty: float = _feature(0.0, Range(-2.0, 2.0), logits=True)
    repetition_penalty: float = _feature(1.0, Range(0.0, 2.0), logits=True)  # 0 itself is none
    logit_bias: tuple[tuple[int, float], ...] = _feature((), Range(-100.0, 100.0), logits=True)
    allowed_token_ids: tuple[int, ...] = _feature((), logits=True)
    bad_words: tuple[tuple[int, ...], ...] = _feature((), logits=True)
    min_tokens: int = _feature(0)
    forbidden: tuple[int, ...] = ()
    logprobs: int | None = _feature(None)
    prompt_logprobs: int | None = _feature(None)

    def __repr__(self) -> str:
        """What differs from the defaults."""
        return f"SamplingParams({', '.join(f'{name}={value!r}' for name, value in _ALL.changed(self).items())})"

    def replaced(self, **values: Any) -> "SamplingParams":  # Any: as in their fields
        """A copy with other values of these fields."""
        return SamplingParams(**(_ALL.values(self) | values))

    @property
    def changes(self) -> str:
        """What differs from the defaults, for logs: temperature 0.6, top_p 0.9; or none."""
        return ", ".join(f"{name} {value}" for name, value in _ALL.changed(self).items()) or "none"

    @property
    def features(self) -> tuple[str, ...]:
        """The FEATURES that it needs of a device, in their order."""
        return tuple(_FEATURES.changed(self))

    @property
    def always_changes_logits(self) -> bool:
        """Before every draw."""
        return bool(_LOGITS.changed(self))

    @property
    def changes_logits(self) -> bool:
        """Before some draws at least."""
        return bool(self.min_tokens and self.forbidden) or self.always_changes_logits

    @classmethod
    def from_proto(cls, message: engine_pb2.SamplingParams) -> "SamplingParams":
        """Raises InvalidSamplingParams for a list that is not packed in whole. Unknown fields are passed over."""
        if len(UnknownFieldSet(message)):
            return cls(**_unpacked(message))
        return cls._with_bytes(message, message.SerializeToString(deterministic=True))

    def to_proto(self) -> engine_pb2.SamplingParams:
        """Raises InvalidSamplingParams for a value that does not fit its field."""
        values = _ALL.changed(self)
        for name in values.keys() & _LISTS.keys():
            values[name] = _LISTS[name].pack(values[name])
        try:
            return engine_pb2.SamplingParams(**values)
        except (TypeError, ValueError) as error:
            raise InvalidSamplingParams("", f"a value does not fit its field: {error}") from error

    @classmethod
    def from_bytes(cls, data: bytes) -> "SamplingParams":
        """Raises InvalidSamplingParams for bytes that are no such message, or one with more fields."""
        try:
            message = engine_pb2.SamplingParams.FromString(data)
        except DecodeError as error:
            raise InvalidSamplingParams("", f"{len(data)} bytes are no sampling parameters: {error}") from error
        if len(unknown := UnknownFieldSet(message)):
            raise InvalidSamplingParams("", f"unknown field number {unknown[0].field_number}")
        return cls._with_bytes(message, data)

    @classmethod
    def _with_bytes(cls, message: engine_pb2.SamplingParams, data: bytes) -> "SamplingParams":
        params = cls(**_unpacked(message))
        object.__setattr__(params, "_bytes", data)
        return params

    def to_bytes(self) -> bytes:
        """The message, of equal parameters the same bytes; from_bytes keeps the bytes that it was given. Raises as
        to_proto does."""
        try:
            return self._bytes
        except AttributeError:
            data = self.to_proto().SerializeToString(deterministic=True)
            object.__setattr__(self, "_bytes", data)
            return data


class _List(NamedTuple):
    """How a field of several values is one value of the message, and back. unpack raises InvalidSamplingParams."""

    pack: Callable[[Any], object]
    unpack: Callable[[str, Any], object]


def _pack(numbers: Iterable[float], code: str = "I") -> bytes:
    """Raises InvalidSamplingParams."""
    try:
        packed: array[Any] = array(code, numbers)
    except (OverflowError, TypeError) as error:
        raise InvalidSamplingParams("", f"a value does not fit its field: {error}") from error
    return _little_endian(packed).tobytes()


def _unpack(name: str, packed: bytes, what: str = "uint32 ids", width: int = 4) -> "array[int]":
    """Words of 32 bits. Raises InvalidSamplingParams."""
    if len(packed) % width:
        raise InvalidSamplingParams(name, f"{len(packed)} bytes are not a whole number of {what}")
    return _little_endian(array("I", packed))


def _little_endian(numbers: "array[Any]") -> "array[Any]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _pack_pairs(pairs: Iterable[tuple[int, float]]) -> bytes:
    """Of each: uint32 id, float32."""
    ids, values = zip(*pairs, strict=True)
    words = array("I", bytes(8 * len(ids)))
    words[0::2] = array("I", _pack(ids))
    words[1::2] = array("I", _pack(values, "f"))
    return words.tobytes()


def _unpack_pairs(name: str, packed: bytes) -> tuple[tuple[int, float], ...]:
    words = _unpack(name, packed, "ids with values", 8)
    return tuple(zip(words[0::2], array("f", words[1::2].tobytes()), strict=True))


def _unpack_ids(name: str, packed: bytes) -> tuple[int, ...]:
    return tuple(_unpack(name, packed))


_IDS = _List(_pack, _unpack_ids)
_LISTS: Mapping[str, _List] = {
    "logit_bias": _List(_pack_pairs, _unpack_pairs),
    "allowed_token_ids": _IDS,
    "bad_words": _List(
        lambda words: list(map(_pack, words)), lambda name, words: tuple(_unpack_ids(name, word) for word in words)
    ),
    "forbidden": _IDS,
}


def _unpacked(message: engine_pb2.SamplingParams) -> dict[str, Any]:
    """Of each field that is set. Raises InvalidSamplingParams."""
    values: dict[str, Any] = {descriptor.name: value for descriptor, value in message.ListFields()}
    for name in values.keys() & _LISTS.keys():
        values[name] = _LISTS[name].unpack(name, values[name])
    return values


_FIELDS = fields(SamplingParams)


class _Some:
    """Some of the fields, of which most requests change none: looked at together."""

    def __init__(self, key: str = "") -> None:
        """key: of the metadata that they have; empty: all fields."""
        chosen = [one for one in _FIELDS if not key or one.metadata.get(key)]
        self.names: tuple[str, ...] = tuple(one.name for one in chosen)
        self._defaults = tuple(one.default for one in chosen)
        self._values = attrgetter(*self.names)

    def values(self, params: SamplingParams) -> dict[str, Any]:
        """By name."""
        return dict(zip(self.names, self._values(params), strict=True))

    def changed(self, params: SamplingParams) -> dict[str, Any]:
        """By name, the values that differ from the defaults."""
        values, defaults = self._values(params), self._defaults
        if values == defaults:
            return {}
        named = zip(self.names, values, defaults, strict=True)
        return {name: value for name, value, default in named if value != default}


_ALL, _FEATURES, _LOGITS = _Some(), _Some("feature"), _Some("logits")
# The tables that follow from the fields. FEATURES: what a device may be unable to serve.
FEATURES, LOGITS_FIELDS = _FEATURES.names, _LOGITS.names
RANGES: Mapping[str, Range] = {one.name: one.metadata["bounds"] for one in _FIELDS if one.metadata.get("bounds")}
