"""JSON Schema of what a parser's own reading does not tell: fields of several shapes, and the answers. Pure."""

from collections.abc import Mapping
from typing import Any

from octavo.router.openai_api.chat import EFFORTS, MAX_DOCUMENTS
from octavo.router.openai_api.messages import MAX_CALLS, MAX_MESSAGES, ROLES
from octavo.router.openai_api.options import (
    MAX_BAD_WORD_CHARACTERS,
    MAX_BAD_WORDS,
    MAX_SALT_CHARACTERS,
    MOST_PRIORITY,
)
from octavo.router.openai_api.prompts import HIGHEST_ID, MAX_IDS, MAX_PROMPTS
from octavo.router.openai_api.responses.response_items import ROLES as ITEM_ROLES
from octavo.router.openai_api.responses.response_request import MAX_METADATA, MAX_METADATA_VALUE
from octavo.router.openai_api.sampling import MAX_ALLOWED_IDS, MAX_BIASES
from octavo.router.openai_api.stop_conditions import MAX_STOP_CHARACTERS, MAX_STOP_IDS, MAX_STOPS
from octavo.router.openai_api.structured import MAX_CHOICES
from octavo.router.openai_api.tools.definitions import MAX_TOOLS, NAME
from octavo.shared.limits import MAX_LOGPROBS

Schema = dict[str, Any]  # Any: JSON

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer", "minimum": 0}
BOOLEAN: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}


def array(items: Schema, most: int | None = None, least: int = 0) -> Schema:
    bounds = ({"maxItems": most} if most is not None else {}) | ({"minItems": least} if least else {})
    return {"type": "array", "items": items} | bounds


def fixed(**properties: Schema) -> Schema:
    """An object that has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def nullable(schema: Schema) -> Schema:
    """Null means absent for every field."""
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


IDS = array({"type": "integer", "minimum": 0, "maximum": HIGHEST_ID}, MAX_IDS, 1)
STOP_STRING = STRING | {"minLength": 1, "maxLength": MAX_STOP_CHARACTERS}
TEXT_PART = fixed(type={"const": "text"}, text=STRING)
MESSAGES = array(
    {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"enum": list(ROLES)},
            "content": {"anyOf": [STRING, array(TEXT_PART, least=1), {"type": "null"}]},
            "tool_calls": nullable(array(OBJECT, MAX_CALLS)),
            "tool_call_id": nullable(STRING),
            "reasoning_content": nullable(STRING),
        },
    },
    MAX_MESSAGES,
    1,
)
INPUT: Schema = {
    "anyOf": [
        STRING,
        array(
            {
                "type": "object",
                "properties": {
                    "type": {"enum": ["message", "function_call", "function_call_output", None]},
                    "role": {"enum": [*ITEM_ROLES, None]},
                },
            },
            MAX_MESSAGES,
            1,
        ),
    ]
}
NON_EMPTY: Schema = STRING | {"minLength": 1}
SCHEMA: Schema = {"type": ["object", "string"]}
RESPONSE_FORMAT: Schema = {
    "anyOf": [
        fixed(type={"enum": ["text", "json_object"]}),
        fixed(
            type={"const": "json_schema"},
            json_schema={"type": "object", "properties": {"schema": SCHEMA}, "required": ["schema"]},
        ),
    ]
}

# Fields that parsers read as they are, by name.
FIELDS: Mapping[str, Schema] = {
    "prompt": {"anyOf": [STRING, IDS, array({"anyOf": [STRING, IDS]}, MAX_PROMPTS, 1)]},
    "messages": MESSAGES,
    "input": INPUT,
    "tokens": array({"type": "integer", "minimum": 0, "maximum": HIGHEST_ID}, MAX_IDS),
    "stop": {"anyOf": [STOP_STRING, array(STOP_STRING, MAX_STOPS)]},
    "stop_token_ids": array({"type": "integer", "minimum": 0, "maximum": HIGHEST_ID}, MAX_STOP_IDS),
    "stream_options": {
        "type": "object",
        "properties": {
            name: nullable(BOOLEAN) for name in ("include_usage", "continuous_usage_stats", "include_obfuscation")
        },
        "additionalProperties": False,
    },
    "metadata": {
        "type": "object",
        "maxProperties": MAX_METADATA,
        "additionalProperties": STRING | {"maxLength": MAX_METADATA_VALUE},
    },
    "tools": array(
        fixed(type={"const": "function"}, function=fixed(name=STRING | {"pattern": f"^{NAME.pattern}$"})), MAX_TOOLS
    ),
    "tool_choice": {
        "anyOf": [{"enum": ["auto", "none", "required"]}, fixed(type={"enum": ["function", "allowed_tools"]})]
    },
    "documents": array(OBJECT, MAX_DOCUMENTS),
    "chat_template_kwargs": OBJECT,
    "logit_bias": {
        "type": "object",
        "maxProperties": MAX_BIASES,
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
    },
    "allowed_token_ids": array({"type": "integer", "minimum": 0, "maximum": HIGHEST_ID}, MAX_ALLOWED_IDS, 1),
    "bad_words": array(STRING | {"minLength": 1, "maxLength": MAX_BAD_WORD_CHARACTERS}, MAX_BAD_WORDS),
    "response_format": RESPONSE_FORMAT,
    "guided_json": SCHEMA,
    "guided_regex": NON_EMPTY,
    "guided_choice": array(NON_EMPTY, MAX_CHOICES, 1),
    "guided_grammar": NON_EMPTY,
    "structured_outputs": {
        "type": "object",
        "properties": {
            "json": nullable(SCHEMA),
            "regex": nullable(NON_EMPTY),
            "choice": nullable(array(NON_EMPTY, MAX_CHOICES, 1)),
            "grammar": nullable(NON_EMPTY),
            "json_object": nullable(BOOLEAN),
            "whitespace_pattern": nullable(STRING),
            "disable_any_whitespace": nullable(BOOLEAN),
            "disable_additional_properties": nullable(BOOLEAN),
            "disable_fallback": nullable(BOOLEAN),
        },
        "additionalProperties": False,
    },
}

COMPLETION_FIELDS: Mapping[str, Schema] = {
    "logprobs": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_LOGPROBS}, {"const": False}]},
}
_SCHEMA_FORMAT: Schema = {
    "type": "object",
    "properties": {"type": {"const": "json_schema"}, "schema": SCHEMA},
    "required": ["type", "schema"],
}
RESPONSE_FIELDS: Mapping[str, Schema] = {
    "text": {
        "type": "object",
        "properties": {"format": nullable({"anyOf": [fixed(type={"enum": ["text", "json_object"]}), _SCHEMA_FORMAT]})},
    },
    "tools": array(fixed(type={"const": "function"}, name=STRING | {"pattern": f"^{NAME.pattern}$"}), MAX_TOOLS),
    "stream_options": {
        "type": "object",
        "properties": {"include_obfuscation": nullable(BOOLEAN)},
        "additionalProperties": False,
    },
}
# What parsers check beyond what they note.
EXACTLY: Mapping[str, Schema] = {
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
    "reasoning_effort": {"enum": list(EFFORTS)},
    "priority": INTEGER | {"minimum": -MOST_PRIORITY, "maximum": MOST_PRIORITY},
    "cache_salt": STRING | {"maxLength": MAX_SALT_CHARACTERS},
    "truncate_prompt_tokens": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": -1}]},
}

_ANSWER = {"id": STRING, "created": INTEGER, "model": STRING}
_CHOICE = {"index": INTEGER, "finish_reason": {"enum": ["stop", "length", "tool_calls"]}}
_CALL = fixed(id=STRING, type={"const": "function"}, function=fixed(name=STRING, arguments=STRING))
_CHAT_MESSAGE = fixed(role={"const": "assistant"}, content=nullable(STRING)) | {
    "description": "`tool_calls` and `reasoning_content` where there are some."
}
_CHAT_MESSAGE["properties"] |= {"tool_calls": array(_CALL, least=1), "reasoning_content": STRING}
_OUTPUT_TEXT = fixed(type={"const": "output_text"}, text=STRING, annotations=array(OBJECT))
_OUTPUT_STATUS = {"enum": ["in_progress", "completed", "incomplete"]}
_OUTPUT: Schema = {
    "anyOf": [
        fixed(
            id=STRING, type={"const": "message"}, role={"const": "assistant"}, status=_OUTPUT_STATUS,
            content=array(_OUTPUT_TEXT),
        ),
        fixed(
            id=STRING, type={"const": "function_call"}, call_id=STRING, name=STRING, arguments=STRING,
            status=_OUTPUT_STATUS,
        ),
    ]
}  # fmt: skip
_RESPONSE_STATUS = {"enum": ["completed", "incomplete", "failed", "in_progress"]}
_MODEL = fixed(id=STRING, object={"const": "model"}, created=INTEGER, owned_by=STRING)

COMPONENTS: Mapping[str, Schema] = {
    "Error": fixed(
        error=fixed(message=STRING, type=STRING, param=nullable(STRING), code=STRING),
    ),
    "Usage": fixed(
        prompt_tokens=INTEGER,
        completion_tokens=INTEGER,
        total_tokens=INTEGER,
        prompt_tokens_details=fixed(cached_tokens=INTEGER),
    ),
    "Completion": fixed(
        object={"const": "text_completion"},
        choices=array(fixed(text=STRING, **_CHOICE), least=1),
        usage=named("Usage"),
        **_ANSWER,
    ),
    "ChatCompletion": fixed(
        object={"const": "chat.completion"},
        choices=array(fixed(message=_CHAT_MESSAGE, **_CHOICE), least=1),
        usage=named("Usage"),
        **_ANSWER,
    ),
    "Response": fixed(
        id=STRING,
        object={"const": "response"},
        created_at=INTEGER,
        model=STRING,
        status=_RESPONSE_STATUS,
        output=array(_OUTPUT),
        usage=fixed(input_tokens=INTEGER, output_tokens=INTEGER, total_tokens=INTEGER),
        error={"type": "null"},
        store={"const": False},
    ),
    "Model": _MODEL,
    "Models": fixed(object={"const": "list"}, data=array(named("Model"))),
    "Tokens": fixed(count=INTEGER, max_model_len=INTEGER, tokens=array(INTEGER), token_strs=nullable(array(STRING))),
    "Text": fixed(prompt=STRING),
    "Version": fixed(version=STRING),
    "Status": fixed(status=STRING)
    | {"properties": {"status": STRING, "groups": named("Groups"), "keys": named("Keys")}},
    "Groups": fixed(listed=INTEGER, connected=INTEGER, missing=array(named("Missing"))),
    "Keys": fixed(valid=BOOLEAN) | {"properties": {"valid": BOOLEAN, "problem": STRING, "message": STRING}},
    "Missing": fixed(address=STRING, seconds={"type": "number"}),
    "Document": fixed(openapi=STRING, paths=OBJECT),
}
