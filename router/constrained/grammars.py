"""From what a client's answer must match to the grammar that an engine is given: converted and compiled once, to see
that it can be. Runs in helper processes only: a compiler may need any time and memory.

Between the tokens of JSON there may be white space, at most 40 characters in a row: a model that knows no end would
else write nothing but that.
"""

import json
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher, grammar_from, regex_to_lark

from octavo.router.constrained.call_grammar import ANSWER
from octavo.router.constrained.grammar_ambiguity import OCTETS
from octavo.router.constrained.schema_satisfiability import is_unsatisfiable
from octavo.router.openai_api.fields import invalid
from octavo.router.openai_api.structured import Structured
from octavo.shared.grammars import REMEMBERED, limits

_WHITE_SPACE = r"[\x20\x0A\x0D\x09]{0,40}"
_known: OrderedDict[Hashable, str] = OrderedDict()  # of this process: clients repeat their schemas
Json = dict[str, Any]  # Any: JSON of any shape


@dataclass(frozen=True, slots=True)
class Function:
    """One that may be called. schema: of its arguments, None: any object. field: of the request, for errors."""

    schema: str | None
    field: str


def grammar(structured: Structured) -> str:
    """As llguidance has it. Raises RequestError 400 naming the field and what is wrong with it."""
    if (text := _remembered(structured)) is None:
        text = json.dumps({"grammars": [_part(structured)]})
        if why := _compile_error(text):
            raise _refused(structured.field, why)
        _remember(structured, text)
    return text


def framed_grammar(lark: str, functions: Sequence[Function], answer: Structured | None) -> str:
    """Of an answer that may be more than what it must match: reasoning, calls. lark: its frame, in which @answer is
    what must match and @f0, @f1, ... are arguments of the functions. Raises RequestError 400 naming the function or the
    field."""
    key = (lark, tuple(functions), answer)
    if (text := _remembered(key)) is not None:
        return text
    parts = {f"f{index}": _arguments(function) for index, function in enumerate(functions)}
    if answer is not None:
        parts[ANSWER] = _part(answer)
    text = json.dumps({"grammars": [{"lark_grammar": lark}, *(part | {"name": name} for name, part in parts.items())]})
    if why := _compile_error(text):
        _raise_for_invalid_part(parts, functions, answer)
        raise _refused("tools" if answer is None else answer.field, why)
    _remember(key, text)
    return text


def _raise_for_invalid_part(
    parts: Mapping[str, Json], functions: Sequence[Function], answer: Structured | None
) -> None:
    """Raises RequestError for the first part that cannot be compiled by itself."""
    fields = {f"f{index}": function.field for index, function in enumerate(functions)}
    if answer is not None:
        fields[ANSWER] = answer.field
    for name, part in parts.items():
        if why := _compile_error(json.dumps({"grammars": [part]})):
            raise _refused(fields[name], why)


def _arguments(function: Function) -> Json:
    """Arguments are an object, whatever else the schema leaves open. Raises RequestError 400 where they cannot be."""
    schema: Json = {"type": "object"} if function.schema is None else json.loads(function.schema)
    kinds = schema.get("type", "object")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        raise _refused(function.field, "its type must be object")
    try:
        return _json_schema(json.dumps(schema | {"type": "object"}))
    except ValueError as error:
        raise _refused(function.field, str(error)) from error


def _json_schema(source: str, white_space: str | None = None) -> Json:
    """white_space: as of a Structured. Raises ValueError."""
    if is_unsatisfiable(json.loads(source)):
        raise ValueError("whatever matches it must hold another of its own kind, without end")
    if white_space == "":
        text = LLMatcher.grammar_from_json_schema(source, overrides={"whitespace_flexible": False})
    else:
        pattern = _WHITE_SPACE if white_space is None else white_space
        text = LLMatcher.grammar_from_json_schema(source, overrides={"whitespace_pattern": pattern})
    part: Json = json.loads(text)["grammars"][0]
    return part


def _part(structured: Structured) -> Json:
    """One of the grammars that llguidance takes together."""
    try:
        if structured.kind == "json_schema":
            _check_white_space(structured)
            return _json_schema(structured.source, structured.white_space)
        if structured.kind == "choice":
            return {"lark_grammar": "start: " + " | ".join(map(json.dumps, json.loads(structured.source)))}
        if structured.kind == "regex":
            return _regex(structured.source)
        return {"lark_grammar": grammar_from("grammar", structured.source)}
    except ValueError as error:
        raise _refused(structured.field, str(error)) from error


def _regex(source: str) -> Json:
    return {"lark_grammar": f"start: /{regex_to_lark(source)}/"}


def _check_white_space(structured: Structured) -> None:
    """By itself: else the schema would seem to be wrong."""
    if structured.white_space and (why := _compile_error(json.dumps({"grammars": [_regex(structured.white_space)]}))):
        raise _refused(f"{structured.field.rpartition('.')[0]}.whitespace_pattern", why)


def _compile_error(text: str) -> str:
    """Why it cannot be compiled or met; empty: it can. Ids of tokens are not looked at: that needs the tokenizer."""
    wrong, messages = LLMatcher.validate_grammar_with_warnings(text, None, limits=limits())
    if wrong:
        return messages[0] if messages else "it cannot be compiled"
    matcher = LLMatcher(OCTETS, text, log_level=0, limits=limits())
    if matcher.is_error():  # it has tokens of the model's own, which are not known here
        return ""
    matcher.compute_bitmask()
    return "nothing matches it" if matcher.is_error() else ""


def _refused(field: str, why: str) -> Exception:
    return invalid(field, f"{field} cannot be used: {why[:500]}", "invalid_grammar")


def _remembered(key: Hashable) -> str | None:
    if key in _known:
        _known.move_to_end(key)
    return _known.get(key)


def _remember(key: Hashable, text: str) -> None:
    _known[key] = text
    if len(_known) > REMEMBERED:
        _known.popitem(last=False)
