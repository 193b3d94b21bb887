"""Constrains an answer to a grammar: of a response format, of tool calls that are required or allowed, or of both. A
model may reason before it.

Runs in helper processes only, as grammars.py does.
"""

from dataclasses import replace
from typing import Any

import orjson

from octavo.router.constrained.call_grammar import lark
from octavo.router.constrained.formats import Formats
from octavo.router.constrained.grammar_ambiguity import is_unambiguous
from octavo.router.constrained.grammars import Function, framed_grammar, grammar
from octavo.router.openai_api.fields import unsupported
from octavo.router.openai_api.openai import ParsedRequest
from octavo.router.openai_api.tools.definitions import ToolUse
from octavo.router.parsers.tools import llama3
from octavo.router.text.bodies import EncodedRequest

NO_PARAMETERS: dict[str, Any] = {"properties": {}, "additionalProperties": False}  # Any: a JSON schema
AMBIGUOUS = (
    "cannot stand beside tools: nothing marks this model's calls, and such an answer may begin as one does; use "
    "tool_choice 'none' or 'required', or a schema of an object whose first property is required and not called 'name'"
)
MUST = {"required": "tool_choice", "named": "tool_choice"}


def constrain(encoded: EncodedRequest, formats: Formats) -> EncodedRequest:
    """The request with its grammar, if it needs one. Raises RequestError 400 naming the field whose grammar is
    invalid."""
    request = encoded.request
    use = request.tool_use
    answer = None if use is not None and use.must else request.structured
    if answer is None and (use is None or not use.bound):
        return encoded
    if answer is not None and use is None and not _may_reason(encoded, formats):
        return replace(encoded, grammar=grammar(answer), grammar_field=answer.field)
    if answer is not None and use is not None:
        encoded = replace(encoded, request=replace(request, tool_use=replace(use, formed=True)))
    shape = formats.shape(use, encoded.thought, answer is not None)
    functions = () if use is None else _functions(request, use)
    text = framed_grammar(lark(shape), functions, answer)
    if answer is not None and shape.format == "llama3":
        either = framed_grammar(lark(replace(shape, thought=None)), functions, answer)
        if not is_unambiguous(either, grammar(answer), tuple(map(llama3.head, shape.names))):
            raise unsupported(answer.field, f"{answer.field} {AMBIGUOUS}")
    called_by = "tools" if use is None else MUST.get(use.mode, "tools")
    return replace(encoded, grammar=text, grammar_field=called_by if answer is None else answer.field)


def _may_reason(encoded: EncodedRequest, formats: Formats) -> bool:
    """Whether the model may reason before the answer."""
    return formats.reasoning and encoded.request.kind != "completion" and encoded.thought != "over"


def _functions(request: ParsedRequest, use: ToolUse) -> tuple[Function, ...]:
    """The functions that may be called."""
    found: list[Function] = []
    for index, tool in enumerate(request.rendering.tools):
        function = tool["function"]
        if function["name"] not in use.names:
            continue
        schema = None
        if function["name"] in use.strict:
            schema = orjson.dumps(function.get("parameters", NO_PARAMETERS)).decode()
        found.append(Function(schema, f"tools[{index}].function.parameters"))
    return tuple(found)
