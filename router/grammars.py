"""From what a client's answer must match to the grammar that an engine is given: converted and compiled once, to see
that it can be. Runs in helper processes only: a compiler may need any time and memory.

Between the tokens of JSON there may be white space, at most 40 characters in a row: a model that knows no end would
else write nothing but that.
"""

import json
from collections import OrderedDict

from llguidance import LLMatcher, grammar_from

from octavo.grammars import REMEMBERED, limits
from octavo.router.fields import invalid
from octavo.router.structured import Structured

_WHITE_SPACE = r"[\x20\x0A\x0D\x09]{0,40}"
_known: OrderedDict[Structured, str] = OrderedDict()  # of this process: clients repeat their schemas


def grammar(wish: Structured) -> str:
    """As llguidance has it. Raises RequestError 400 naming the field and what is wrong with it."""
    text = _known.pop(wish, None)
    if text is None:
        text = _converted(wish)
        _check(wish, text)
    _known[wish] = text
    if len(_known) > REMEMBERED:
        _known.popitem(last=False)
    return text


def _converted(wish: Structured) -> str:
    try:
        if wish.form == "json_schema":
            return LLMatcher.grammar_from_json_schema(wish.source, overrides={"whitespace_pattern": _WHITE_SPACE})
        if wish.form == "choice":
            return LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, json.loads(wish.source))))
        return grammar_from(wish.form, wish.source)
    except ValueError as error:
        raise _refused(wish, str(error)) from error


def _check(wish: Structured, text: str) -> None:
    wrong, messages = LLMatcher.validate_grammar_with_warnings(text, None, limits=limits())
    if wrong:
        raise _refused(wish, messages[0] if messages else "it cannot be compiled")


def _refused(wish: Structured, why: str) -> Exception:
    return invalid(wish.field, f"{wish.field} cannot be used: {why[:500]}", "invalid_grammar")
