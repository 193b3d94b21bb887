"""The OpenAPI document of /openapi.json, made from what serves: the table of routes, and the parsers themselves.

A parser is run once with fields that note how they are read (`integer("top_k", -1, 2**31 - 1)`), so that a type or a
bound stands in one place only. Names that are known and refused come from the tables that refuse them. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from octavo import __version__
from octavo.router.api_document.routes import ROUTES, Route
from octavo.router.api_document.schemas import (
    COMPLETION_FIELDS,
    COMPONENTS,
    EXACTLY,
    FIELDS,
    RESPONSE_FIELDS,
    Schema,
    named,
    nullable,
)
from octavo.router.openai_api import known_fields as known
from octavo.router.openai_api.fields import Fields
from octavo.router.openai_api.openai import HARMLESS, KNOWN, NEUTRAL, Kind, parse
from octavo.router.openai_api.responses import response_request
from octavo.router.text import tokenizing
from octavo.router.text.tokenizing import Operation

Asks = Kind | Operation
Read = Callable[[Mapping[str, object], Callable[[Mapping[str, object]], Fields]], object]

CHAT: Mapping[str, object] = {"messages": [{"role": "user", "content": "Hello!"}]}
ERRORS = {
    "400": "A field is wrong, not supported, or too large; `param` names it.",
    "401": "The key is missing or not known.",
    "404": "Another model is served, or the path does not exist.",
    "405": "The path has another method.",
    "408": "The body did not come in time.",
    "413": "The body is too large.",
    "415": "The body is compressed.",
    "429": "Too many requests wait.",
    "431": "The headers are too large.",
    "500": "The engine or the router failed.",
    "502": "The group that answered was lost.",
    "503": "No group has room, or the router is shutting down.",
    "504": "The request's own time was over.",
}
PROBE_ERRORS = ("401", "405", "503")


@dataclass(frozen=True, slots=True)
class Recorder(Fields):
    """Notes in `seen` how each field is read."""

    seen: dict[str, Schema] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        self.seen[name] = {"type": "string"}
        return Fields.text(self, name)

    def flag(self, name: str) -> bool:
        self.seen[name] = {"type": "boolean"}
        return Fields.flag(self, name)

    def integer(self, name: str, low: int, high: int | None) -> int | None:
        self.seen[name] = {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})
        return Fields.integer(self, name, low, high)

    def number(self, name: str, low: float, high: float) -> float | None:
        self.seen[name] = {"type": "number", "minimum": low, "maximum": high}
        return Fields.number(self, name, low, high)


@dataclass(frozen=True, slots=True)
class Body:
    """What a POST takes. example: the least that is valid; the parser is run with it. answer: a component's name.

    served, harmless, refused: arguments of `unknown_fields`. shapes: schemas of fields that only this body has.
    """

    read: Read
    example: Mapping[str, object]
    required: tuple[str, ...]
    served: frozenset[str]
    harmless: frozenset[str]
    refused: Mapping[str, known.Values]
    answer: str
    streams: bool = False
    shapes: Mapping[str, Schema] = field(default_factory=dict)

    def schema(self) -> Schema:
        seen: dict[str, Schema] = {"model": {"type": "string"}, "timeout": _timeout()}
        self.read({**self.example, **RARE}, lambda values: Recorder(values, seen=seen))
        properties = {name: _refused(values) for name, values in known.ELSEWHERE.items()}
        properties |= {name: {"type": "null"} for name in known.OF_ONE_ENDPOINT}
        properties |= {name: _refused(values) for name, values in self.refused.items()}
        properties |= {name: {"description": "Accepted, without effect."} for name in self.harmless}
        for name in self.served | known.EVERYWHERE:
            described = self.shapes.get(name) or EXACTLY.get(name) or seen.get(name) or FIELDS.get(name, {})
            properties[name] = described if name in self.required else nullable(described) if described else {}
        return {"type": "object", "properties": dict(sorted(properties.items())), "required": list(self.required)}


def _of(table: Mapping[str, known.Values], names: frozenset[str]) -> dict[str, known.Values]:
    return {name: values for name, values in table.items() if name in names}


# Fields that few requests have are read when there is one of them: this one asks for nothing.
RARE: Mapping[str, object] = {"presence_penalty": 0}
SHORT: Mapping[str, object] = {"max_tokens": 2}
BODIES: Mapping[Asks, Body] = {
    "completion": Body(
        partial(parse, "completion"), {"prompt": "Once upon a time", **SHORT}, ("prompt",), KNOWN["completion"],
        HARMLESS, NEUTRAL, "Completion", True, COMPLETION_FIELDS,
    ),
    "chat": Body(
        partial(parse, "chat"), {**CHAT, **SHORT}, ("messages",), KNOWN["chat"], HARMLESS, NEUTRAL, "ChatCompletion",
        True,
    ),
    "response": Body(
        response_request.parse_response, {"input": "Hello!", "max_output_tokens": 2}, ("input",),
        response_request.SERVED, response_request.WITHOUT_EFFECT, response_request.REFUSED, "Response", True,
        RESPONSE_FIELDS,
    ),
    "tokenize_json": Body(
        tokenizing.parse_tokenize, CHAT, (), tokenizing.TOKENIZE | tokenizing.RENDERING & KNOWN["chat"],
        tokenizing.HARMLESS_HERE, {**tokenizing.REFUSED, **_of(NEUTRAL, tokenizing.RENDERING)}, "Tokens",
    ),
    "detokenize_json": Body(
        tokenizing.parse_detokenize, {"tokens": [1, 2]}, ("tokens",), tokenizing.DETOKENIZE, HARMLESS, NEUTRAL, "Text"
    ),
}  # fmt: skip
PAGES = {
    "livez": "Status",
    "readyz": "Status",
    "routerz": "Status",
    "version": "Version",
    "openapi": "Document",
    "models": "Models",
    "model": "Model",
}


def document(needs_key: bool) -> Schema:
    """OpenAPI 3.1. needs_key: keys are configured."""
    bearer = {"type": "http", "scheme": "bearer"}
    security = {"securitySchemes": {"bearer": bearer}} if needs_key else {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Octavo",
            "version": __version__,
            "description": "OpenAI's API, served by Octavo. docs/api.md lists each field's differences.",
        },
        "paths": {route.path: {route.methods[0].lower(): _operation(route, needs_key)} for route in ROUTES},
        "components": {"schemas": dict(COMPONENTS), **security},
    }


def _operation(route: Route, needs_key: bool) -> Schema:
    operation: Schema = {"summary": route.summary, "operationId": route.path.strip("/").replace("/", "_")}
    if needs_key and not route.is_open:
        operation["security"] = [{"bearer": []}]
    if route.path.endswith("{model}"):
        operation["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    if route.asks is None:
        assert route.page is not None, "a route has a body or is a page"
        missing = ("404",) if route.page == "model" else ()
        return operation | {"responses": _responses(PAGES[route.page], (*PROBE_ERRORS, *missing), route)}
    body = BODIES[route.asks]
    content = {"application/json": {"schema": body.schema(), "example": dict(body.example)}}
    operation["requestBody"] = {"required": True, "content": content}
    return operation | {"responses": _responses(body.answer, tuple(ERRORS), route)}


def _responses(answer: str, errors: tuple[str, ...], route: Route) -> Schema:
    good: Schema = {"application/json": {"schema": named(answer)}}
    if route.asks is not None and BODIES[route.asks].streams:
        good["text/event-stream"] = {}
    bad: Schema = {"application/json": {"schema": named("Status" if route.is_probe else "Error")}}
    failures = {code: {"description": ERRORS[code], "content": bad} for code in sorted(errors)}
    if route.is_probe:
        failures |= {
            code: failures[code] | {"content": {"application/json": {"schema": named("Error")}}}
            for code in ("401", "405")
        }
    return {"200": {"description": "What was asked for.", "content": good}} | failures


def _refused(values: known.Values) -> Schema:
    if not values:
        return {"type": "null", "description": "Not supported."}
    return {"enum": [*values, None], "description": "Not supported, but for what asks for nothing."}


def _timeout() -> Schema:
    return {"type": "number", "minimum": known.MIN_TIMEOUT_S, "maximum": known.MAX_TIMEOUT_S}
