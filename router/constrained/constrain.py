"""Constrains an answer to a grammar: of a response format, of tool calls that are required or allowed, or of both. A
model may reason before it.

Runs in helper processes only, as grammars.py does.
"""

from dataclasses import replace
from typing import Any

import orjson

from octavo.router.constrained.call_grammar import lark
from octavo.router.constrained.formats import Formats
from octavo.router.constrained.grammar_ambiguity import told_apart
from octavo.router.constrained.grammars import Function, framed, grammar
from octavo.router.openai_api.fields import unsupported
from octavo.router.openai_api.openai import Ask
from octavo.router.openai_api.tools.definitions import ToolUse
from octavo.router.parsers.tools import llama3
from octavo.router.text.bodies import Prepared

NOTHING_TO_SAY: dict[str, Any] = {"properties": {}, "additionalProperties": False}  # Any: a JSON schema
UNMARKED = (
    "cannot stand beside tools: nothing marks this model's calls, and such an answer may begin as one does; use "
    "tool_choice 'none' or 'required', or a schema of an object whose first property is required and not called 'name'"
)
MUST = {"required": "tool_choice", "named": "tool_choice"}


def bind(prepared: Prepared, formats: Formats) -> Prepared:
    """The request with its grammar, if it needs one. Raises RequestError 400 naming the field whose grammar is
    invalid."""
    ask = prepared.ask
    use = ask.tool_use
    answer = None if use is not None and use.must else ask.structured
    if answer is None and (use is None or not use.bound):
        return prepared
    if answer is not None and use is None and not _may_reason(prepared, formats):
        return replace(prepared, grammar=grammar(answer), grammar_field=answer.field)
    if answer is not None and use is not None:
        prepared = replace(prepared, ask=replace(ask, tool_use=replace(use, formed=True)))
    form = formats.form(use, prepared.thought, answer is not None)
    functions = () if use is None else _functions(ask, use)
    text = framed(lark(form), functions, answer)
    if answer is not None and form.format == "llama3":
        either = framed(lark(replace(form, thought=None)), functions, answer)
        if not told_apart(either, grammar(answer), tuple(map(llama3.head, form.names))):
            raise unsupported(answer.field, f"{answer.field} {UNMARKED}")
    called_by = "tools" if use is None else MUST.get(use.mode, "tools")
    return replace(prepared, grammar=text, grammar_field=called_by if answer is None else answer.field)


def _may_reason(prepared: Prepared, formats: Formats) -> bool:
    """Whether the model may reason before the answer."""
    return formats.reasoning and prepared.ask.kind != "completion" and prepared.thought != "over"


def _functions(ask: Ask, use: ToolUse) -> tuple[Function, ...]:
    """The functions that may be called."""
    found: list[Function] = []
    for index, tool in enumerate(ask.rendering.tools):
        function = tool["function"]
        if function["name"] not in use.names:
            continue
        schema = None
        if function["name"] in use.strict:
            schema = orjson.dumps(function.get("parameters", NOTHING_TO_SAY)).decode()
        found.append(Function(schema, f"tools[{index}].function.parameters"))
    return tuple(found)
