"""What binds an answer to a grammar: a form that the client wants, tools that it must or may call, or both.

Runs in helper processes only, as grammars.py does.
"""

from dataclasses import replace
from typing import Any

import orjson

from octavo.router.bodies import Prepared
from octavo.router.call_grammar import lark
from octavo.router.fields import unsupported
from octavo.router.formats import Formats
from octavo.router.grammars import Function, grammar, with_calls
from octavo.router.openai import Ask
from octavo.router.tools.definitions import ToolUse

NOTHING_TO_SAY: dict[str, Any] = {"properties": {}, "additionalProperties": False}  # Any: a JSON schema
UNMARKED = (
    "is not available beside tools: nothing marks this model's calls, which such an answer may look like; "
    "use tool_choice 'none' or 'required', or a tool for the answer"
)
MUST = {"required": "tool_choice", "named": "tool_choice"}


def bind(prepared: Prepared, formats: Formats) -> Prepared:
    """With its grammar, if it has one. Raises RequestError 400 naming what cannot be compiled or met."""
    ask = prepared.ask
    use, wish = ask.tool_use, ask.structured
    if use is None or not (use.bound or wish is not None):
        return prepared if wish is None else replace(prepared, grammar=grammar(wish), bound_by=wish.field)
    answer = None if use.must else wish
    if answer is not None and formats.tools == "llama3":
        raise unsupported(answer.field, f"{answer.field} {UNMARKED}")
    form = formats.form(use, prepared.reasoning_open, answer is not None)
    text = with_calls(lark(form), _functions(ask, use), answer)
    field = MUST.get(use.mode) or (answer.field if answer is not None else "tools")
    return replace(prepared, grammar=text, bound_by=field)


def _functions(ask: Ask, use: ToolUse) -> list[Function]:
    """Those that may be called."""
    found = []
    for index, tool in enumerate(ask.rendering.tools):
        function = tool["function"]
        if function["name"] not in use.names:
            continue
        schema = None
        if function["name"] in use.strict:
            schema = orjson.dumps(function.get("parameters", NOTHING_TO_SAY)).decode()
        found.append(Function(schema, f"tools[{index}].function.parameters"))
    return found
