"""Structured output: OpenAI's `response_format`, and the fields that vLLM has. Pure.

What is allowed ends as one `Structured`; whether it can be compiled is seen where that may take its time
(constrained/grammars.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from octavo.router.openai_api.fields import Fields, invalid, unsupported
from octavo.router.openai_api.plain_json import JsonLimits, check_bounds

Json = Any  # of any shape
StructuredKind = Literal["json_schema", "regex", "choice", "grammar"]

MAX_SOURCE_BYTES = 65_536
BOUNDS = JsonLimits(depth=64, size=MAX_SOURCE_BYTES)  # of a schema
MAX_CHOICES = 1_000
ANY_OBJECT = b'{"type":"object"}'
_PATTERN, _COMPACT, _CLOSED = "whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"
_FALLBACK = "disable_fallback"
_OF_JSON = (_PATTERN, _COMPACT, _CLOSED)  # options of structured_outputs that change what JSON may be
_OPTIONS = frozenset((*_OF_JSON, _FALLBACK))
NAMES = frozenset(
    ("response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs")
)


@dataclass(frozen=True, slots=True)
class Structured:
    """source: a JSON schema, a regular expression, a JSON list of strings, or a grammar as Lark or GBNF writes it.
    field: of the request, for errors. white_space: what may stand between the tokens of JSON, a regular expression;
    empty: nothing; None: as we have it."""

    kind: StructuredKind
    source: str
    field: str
    white_space: str | None = None


def structured(body: Mapping[str, object]) -> Structured | None:
    """What the answer must match. Raises RequestError 400 naming the field, also when two of them are given."""
    found = [one for name in sorted(NAMES) if (one := _one(name, body.get(name))) is not None]
    if len(found) > 1:
        names = ", ".join(one.field for one in found)
        raise invalid(found[1].field, f"{names}: give one of them")
    if not found:
        return None
    (one,) = found
    if len(one.source.encode()) > MAX_SOURCE_BYTES:
        raise invalid(one.field, f"{one.field} is larger than {MAX_SOURCE_BYTES} bytes")
    check_end(body, one.field)
    return one


def check_end(body: Mapping[str, object], field: str) -> None:
    """An answer that is bound ends where its grammar has it. Raises RequestError 400. field: that binds it."""
    for name, neutral in (("ignore_eos", (None, False)), ("min_tokens", (None, 0))):
        if body.get(name) not in neutral:
            raise invalid(name, f"{name} contradicts {field}: the answer ends where what it must match ends")


def _one(name: str, value: object) -> Structured | None:
    if value is None:
        return None
    if name == "response_format":
        return _response_format(value)
    if name == "structured_outputs":
        return _structured_outputs(value)
    return _PARSERS[name](name, value)


def _response_format(value: object) -> Structured | None:
    if not isinstance(value, dict):
        raise invalid("response_format", "response_format must be an object with a type")
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Structured("json_schema", ANY_OBJECT.decode(), "response_format")
    if kind != "json_schema":
        raise invalid("response_format.type", "response_format.type must be text, json_object or json_schema")
    inner = value.get("json_schema")
    where = "response_format.json_schema"
    if not isinstance(inner, dict):
        raise invalid(where, f"{where} must be an object with a name and a schema")
    for name in inner:
        if name not in ("name", "description", "schema", "strict"):
            raise unsupported(f"{where}.{name}", f"unknown field {where}.{name[:64]}: remove it")
    fields = Fields(inner, f"{where}.")
    fields.text("name"), fields.text("description"), fields.flag("strict")
    if inner.get("schema") is None:
        raise invalid(f"{where}.schema", f"{where}.schema is required: a JSON schema")
    return _schema(f"{where}.schema", inner["schema"])


def _structured_outputs(value: object) -> Structured | None:
    where = "structured_outputs"
    if not isinstance(value, dict):
        raise invalid(where, f"{where} must be an object with one of {', '.join(_INNER_PARSERS)}")
    found = []
    for name, inner in value.items():
        if name not in _INNER_PARSERS and name not in _OPTIONS:
            hint = ALTERNATIVES.get(name, "remove it")
            raise unsupported(f"{where}.{name}", f"{where}.{name[:64]} is not supported: {hint}")
        if name in _INNER_PARSERS and inner is not None and not (name == "json_object" and inner is False):
            found.append(_INNER_PARSERS[name](f"{where}.{name}", inner))
    if len(found) != 1:
        raise invalid(where, f"{where} must have one of {', '.join(_INNER_PARSERS)}")
    return _with_options(found[0], Fields(value, f"{where}."))


def _with_options(one: Structured, options: Fields) -> Structured:
    """Apply vLLM's options. disable_fallback changes nothing: there is one compiler."""
    pattern, compact, closed = options.text(_PATTERN), options.flag(_COMPACT), options.flag(_CLOSED)
    options.flag(_FALLBACK)
    for name in _OF_JSON:
        where = options.prefix + name
        if options.get(name) not in (None, False) and one.kind != "json_schema":
            raise invalid(where, f"{where} needs json or json_object beside it")
    if pattern is not None and compact:
        where = options.prefix + _PATTERN
        raise invalid(where, f"{where} contradicts {_COMPACT}: give one of them")
    source = orjson.dumps(_closed(orjson.loads(one.source))).decode() if closed else one.source
    return replace(one, source=source, white_space="" if compact else pattern)


def _closed(schema: Json) -> Json:
    """The schema with `additionalProperties: false` wherever it names properties and does not say."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    names = "properties" in schema or "patternProperties" in schema
    more = {"additionalProperties": False} if names and "additionalProperties" not in schema else {}
    return {key: _closed(value) for key, value in schema.items()} | more


def _schema(where: str, value: object) -> Structured:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise invalid(where, f"{where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise invalid(where, f"{where} must be a JSON schema, an object")
    check_bounds(where, value, BOUNDS)
    return Structured("json_schema", orjson.dumps(value).decode(), where)


def _regex(where: str, value: object) -> Structured:
    return Structured("regex", _text(where, value), where)


def _grammar(where: str, value: object) -> Structured:
    return Structured("grammar", _text(where, value), where)


def _choice(where: str, value: object) -> Structured:
    if not isinstance(value, list) or not value or len(value) > MAX_CHOICES:
        raise invalid(where, f"{where} must be a list of 1 to {MAX_CHOICES} strings")
    if not all(isinstance(item, str) and item for item in value):
        raise invalid(where, f"{where} must hold strings that are not empty")
    return Structured("choice", orjson.dumps(value).decode(), where)


def _any_object(where: str, value: object) -> Structured:
    if value is not True:
        raise invalid(where, f"{where} must be true or false")
    return Structured("json_schema", ANY_OBJECT.decode(), where)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise invalid(where, f"{where} must be a string that is not empty")
    return value


ALTERNATIVES = {"structural_tag": "use tools for parts that are bound, or a grammar for the whole answer"}
FieldParser = Callable[[str, object], Structured]
_PARSERS: Mapping[str, FieldParser] = {
    "guided_json": _schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
}
_INNER_PARSERS: Mapping[str, FieldParser] = {
    "json": _schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _any_object,
}
