"""What an answer must match, as clients ask for it: what it means, and whether it can be met at all."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from octavo.router.constrained.grammars import grammar
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.structured import structured
from octavo.shared.grammars import limits

OCTETS = LLTokenizer("byte")
NODE: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}}
LIST: dict[str, Any] = {"type": "array", "minItems": 1}
CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}


def compiled(**body: Any) -> str:
    constraint = structured(body)
    assert constraint is not None
    return grammar(constraint)


def accepts(text: str, **body: Any) -> bool:
    matcher = LLMatcher(OCTETS, compiled(**body), log_level=0, limits=limits())
    ids = OCTETS.tokenize_str(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def refused(**body: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        compiled(**body)
    assert caught.value.status == 400
    return caught.value


def nested(depth: int) -> str:
    """A schema, as text: what is deeper than any body may be arrives like this."""
    return '{"items":' * depth + "{}" + "}" * depth


def many(kind: str, count: int) -> dict[str, Any]:
    return {kind: [{"properties": {f"p{n}": {"type": "string"}}} for n in range(count)]}


SCHEMAS: dict[str, Any] = {
    "too deep": nested(65),
    "deeper than Python calls": nested(900),
    "too large": {"enum": ["x" * 70_000]},
    "grows too large": {"allOf": [many("anyOf", 8) for _ in range(12)]},
    "lengths": {"type": "string", "minLength": 3, "maxLength": 2},
    "another type's constant": {"type": "integer", "const": "x"},
    "another type's values": {"type": "integer", "enum": ["x"]},
    "no values": {"enum": []},
    "integers": {"type": "integer", "minimum": 3, "maximum": 2},
    "numbers": {"type": "number", "minimum": 3, "maximum": 2},
    "no integer between": {"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 3},
    "required and forbidden": CLOSED | {"properties": {"a": {}}, "required": ["b"]},
    "required and never": {"properties": {"a": False}, "required": ["a"], "type": "object"},
    "items": {"type": "array", "minItems": 3, "maxItems": 2},
    "no item": {"type": "array", "items": False, "minItems": 1},
    "properties": {"type": "object", "minProperties": 2, "maxProperties": 1},
    "two types": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "pattern and length": {"type": "string", "pattern": "^a$", "minLength": 2},
    "format and length": {"type": "string", "format": "date", "maxLength": 2},
    "points at itself": {"$ref": "#"},
    "points in a circle": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "holds itself": NODE | {"required": ["next"]},
    "each holds the other": {
        "$defs": {"a": LIST | {"items": {"$ref": "#/$defs/b"}}, "b": {"allOf": [{"$ref": "#/$defs/a"}, {}]}},
        "anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
    },
    "points nowhere": {"$ref": "#/$defs/a"},
    "points elsewhere": {"$ref": "https://example.com/a.json"},
    "unknown format": {"type": "string", "format": "no"},
    "not": {"not": {"type": "string"}},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_that_cannot_be_met_or_compiled_is_refused_by_its_field(name: str) -> None:
    assert refused(guided_json=SCHEMAS[name]).field == "guided_json"
    if isinstance(SCHEMAS[name], dict):
        wrapped = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMAS[name]}}
        assert refused(response_format=wrapped).field == "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("field", "source"),
    [
        ("guided_regex", "a("),
        ("guided_regex", "(?=a)b"),
        ("guided_regex", r"a[^\s\S]"),
        ("guided_regex", "x" * 70_000),
        ("guided_grammar", "start: start"),
        ("guided_grammar", "start: a\na: b\nb: a"),
        ("guided_grammar", 'start: %json {"$ref": "#"}'),
        ("guided_grammar", "start: missing"),
        ("guided_grammar", "start: @missing"),
    ],
)
def test_an_expression_or_grammar_that_nothing_matches_is_refused(field: str, source: str) -> None:
    assert refused(**{field: source}).field == field


@pytest.mark.parametrize(
    "body",
    [
        {"guided_json": {"enum": [f"value {n}" for n in range(4_000)]}},
        {"guided_json": nested(60)},
        {"guided_json": NODE},
        {"guided_json": NODE | {"required": ["next"], "type": ["object", "null"]}},
        {
            "guided_json": {
                "type": "object",
                "properties": {"a": {"anyOf": [{"$ref": "#"}, {"const": 1}]}},
                "required": ["a"],
            }
        },
        {"guided_json": LIST | {"prefixItems": [{}], "items": {"$ref": "#"}}},
        {"guided_json": {"type": "string", "pattern": "^(a|aa)+(b|bb)+((a|b)*c){50}$"}},
        {"guided_json": {"type": "string", "minLength": 1_000_000}},
        {"guided_regex": "(a|a)*" * 20},
        {"guided_regex": "(((a{1,100}){1,100}){1,100}){1,100}"},
        {"guided_regex": "[ab]*a[ab]{200}"},
        {"guided_grammar": 'start: a a a\na: a a | "x" |'},
        {"guided_grammar": "start: <|im_end|>"},  # of which only the engine knows whether it is there
    ],
)
def test_what_is_large_or_ambiguous_but_can_be_met_is_compiled(body: dict[str, Any]) -> None:
    assert compiled(**body)


def options(**more: Any) -> dict[str, Any]:
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return {"structured_outputs": {"json": schema} | more}


def test_white_space_and_further_properties_are_as_the_options_have_it() -> None:
    tight, loose, extra = '{"a":{"b":1}}', '{"a":  {"b": 1}}', '{"a":{"b":1,"c":2}}'
    assert all(accepts(text, **options()) for text in (tight, loose, extra))
    for compact in ({"disable_any_whitespace": True}, {"whitespace_pattern": ""}):
        assert accepts(tight, **options(**compact)) and not accepts(loose, **options(**compact))
    dashed = options(whitespace_pattern="-*")
    assert accepts('{"a":--{"b":1-}}', **dashed) and not accepts(loose, **dashed)
    closed = options(disable_additional_properties=True)
    assert accepts(loose, **closed) and not accepts(extra, **closed) and not accepts('{"a":{},"d":1}', **closed)
    nothing = dict.fromkeys(("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"))
    assert accepts(extra, **options(**nothing, disable_fallback=True))


def test_what_a_schema_says_itself_about_further_properties_outlives_the_option() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {"a": inner, "o": inner | {"additionalProperties": True}},
        "required": ["a", "o"],
        "additionalProperties": {"type": "null"},
    }
    asked = {"structured_outputs": {"json": schema, "disable_additional_properties": True}}
    assert accepts('{"a":{"b":1},"o":{"b":1,"c":2},"d":null}', **asked)
    assert not accepts('{"a":{"b":1,"c":2},"o":{}}', **asked) and not accepts('{"a":{},"o":{},"d":1}', **asked)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"regex": "a", "whitespace_pattern": " "}, "whitespace_pattern"),
        ({"choice": ["a"], "disable_any_whitespace": True}, "disable_any_whitespace"),
        ({"json": {}, "whitespace_pattern": "("}, "whitespace_pattern"),
        ({"json": {}, "whitespace_pattern": 1}, "whitespace_pattern"),
        ({"json": {}, "whitespace_pattern": " ", "disable_any_whitespace": True}, "whitespace_pattern"),
        ({"json": {}, "disable_additional_properties": "yes"}, "disable_additional_properties"),
        ({"structural_tag": "{}"}, "structural_tag"),
        ({"json": {}, "backend": "xgrammar"}, "backend"),
    ],
)
def test_an_option_that_says_nothing_there_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    assert refused(structured_outputs=body).field == f"structured_outputs.{field}"


def test_what_is_refused_instead_of_bound_says_what_to_do() -> None:
    assert "grammar" in refused(structured_outputs={"structural_tag": json.dumps({"structures": []})}).message
