"""The grammar of an answer that is, or may be, calls: each format just as its parser reads it and its models write it;
and of one that has a form, where the model reasons before it.

    start:    [thought] body              a model that reasons may do so first
    body:     calls                       a call is required
              TEXT | TEXT calls           else: text, and calls end the answer
              answer | calls              else, with a response format
              answer                      without tools

    hermes    <tool_call>\\n{"name": "f", "arguments": ...}\\n</tool_call>, several with \\n between
    llama3    {"name": "f", "parameters": ...}, several with "; " between
    mistral   [TOOL_CALLS] [{"name": "f", "arguments": ...}, ...], or [TOOL_CALLS]f[ARGS]... for each

In llguidance's Lark: `<[5]>` is a token by its id, `@f0` another grammar; a rule that is `[lazy]` ends as soon as it
can. A marker that the tokenizer has is written by its id, for that is how models write it. TEXT may not hold what the
parser would take for a call. Pure.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from octavo.router.parsers import reasoning
from octavo.router.parsers.reasoning import Thought
from octavo.router.parsers.tools import hermes, mistral
from octavo.router.parsers.tools.formats import MARKERS, ToolFormat

ANSWER = "answer"  # the name of the response format's grammar
ANY = r"(.|\n)*"
BLANK = r"[ \t\r\n]*"
SPACE = r"[ \t\r\n]{0,16}"  # bounded: a model that knows no end would write nothing but that
BREAK = r"\n{0,16}"  # behind reasoning: what the parser leaves out there


@dataclass(frozen=True, slots=True)
class Marker:
    """id: its token's, if it has one. spelt: the parser finds it in text, too."""

    text: str
    id: int | None = None
    spelt: bool = True

    @property
    def rule(self) -> str:
        return literal(self.text) if self.id is None else f"<[{self.id}]>"


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """What an answer may be. format: None: no calls. names: of functions, whose arguments are the grammars @f0, @f1 ...
    must: calls alone. several: calls at once. answers: what is no call is the grammar @answer. thought: None: the model
    does not reason. written: markers as the template has them."""

    format: ToolFormat | None
    names: Sequence[str]
    marker: Callable[[str], Marker]
    must: bool = False
    several: bool = True
    answers: bool = False
    thought: Thought | None = None
    written: frozenset[str] = frozenset()


def lark(shape: AnswerShape) -> str:
    """Of the whole answer."""
    if shape.format is None:
        return "\n".join([*_thought(shape), f"body: @{ANSWER}"]) + "\n"
    calls = _FORMATS[shape.format](shape, shape.format)
    rules = [*_thought(shape), *calls.rules()]
    if shape.must:
        rules += [f"body: {calls.whole()}"]
    elif shape.answers:
        rules += [f"body: @{ANSWER} | {calls.whole()}"]
    else:
        rules += calls.after_text(_opening_thought(shape))
    return "\n".join(rules) + "\n"


class _Calls(ABC):
    """The calls of one format, where a marker stands before them."""

    def __init__(self, shape: AnswerShape, format: ToolFormat) -> None:
        self.shape = shape
        self.begin = shape.marker(MARKERS[format][0])

    @abstractmethod
    def rules(self) -> list[str]:
        """Of `rest`: what follows the first marker."""

    def whole(self) -> str:
        return f"{self.begin.rule} rest"

    def after_text(self, unlike: Sequence[str]) -> list[str]:
        """Of `body`. unlike: what text does not match either."""
        begin = self.begin
        held = [f"{ANY}{regex(begin.text)}{ANY}"] if begin.spelt else []
        text = terminal("TEXT", ANY, [*held, *unlike])
        if begin.id is not None:
            return ["body: TEXT | TEXT " + self.whole(), text]
        lead = terminal("LEAD", ANY + regex(begin.text), unlike)
        return ["body: TEXT | lead rest", "lead[lazy]: LEAD", lead, text]

    def objects(self, key: str) -> str:
        """A call as an object, of each function. The brace is by itself, as where JSON has a schema: the lexer takes
        what is longest, and an answer may begin with a brace as well."""
        heads = (f'"name": "{name}", "{key}": ' for name in self.shape.names)
        return " | ".join(f'"{{" {literal(head)} @f{index} "}}"' for index, head in enumerate(heads))

    def more(self, rule: str) -> str:
        return f"({rule})*" if self.shape.several else ""


class _Hermes(_Calls):
    def rules(self) -> list[str]:
        end = self.shape.marker(hermes.END)
        rest = "rest: inner " + self.more(f'"\\n" {self.begin.rule} inner')
        return [f"object: {self.objects('arguments')}", f'inner: "\\n" object "\\n" {end.rule}', rest]


class _Mistral(_Calls):
    def rules(self) -> list[str]:
        if mistral.ARGS not in self.shape.written:
            several = self.more('", " object')
            return [f"object: {self.objects('arguments')}", f'rest: " "? "[" object {several} "]"']
        args = self.shape.marker(mistral.ARGS).rule
        identified = f"{self.shape.marker(mistral.CALL_ID).rule} ID " if mistral.CALL_ID in self.shape.written else ""
        each = (f"{literal(name)} {identified}{args} @f{index}" for index, name in enumerate(self.shape.names))
        ids = ["ID: /[A-Za-z0-9]{9}/"] if identified else []
        return ["inner: " + " | ".join(each), "rest: inner " + self.more(f"{self.begin.rule} inner"), *ids]


class _Llama3(_Calls):
    """Nothing but a function's name marks a call: text may hold no object that begins a line and names one."""

    def rules(self) -> list[str]:
        return [f"object: {self.objects('parameters')}"]

    def whole(self) -> str:
        return "object " + self.more('"; " object')

    def after_text(self, unlike: Sequence[str]) -> list[str]:
        names = "|".join(map(regex, self.shape.names))
        line = rf"({ANY}\n)?[ \t]*"
        call = rf'{line}\{{{BLANK}"name"{BLANK}:{BLANK}"({names})"{ANY}'
        tagged = [f"{ANY}{regex(self.begin.text)}{ANY}"] if self.begin.spelt else []
        leads = []
        for index, name in enumerate(self.shape.names):
            head = literal(f'{{"name": "{name}", "parameters": ')
            leads += [f"lead{index}[lazy]: LEAD{index}", f"LEAD{index}: BEFORE {head}"]
        first = " | ".join(f'lead{index} @f{index} "}}"' for index, _ in enumerate(self.shape.names))
        more = self.more('"; " object')
        before = terminal("BEFORE", line, [call, *tagged, *unlike])
        text = terminal("TEXT", ANY, [call, *tagged, *unlike])
        return [f"body: TEXT | first {more}", f"first: {first}", *leads, before, text]


_FORMATS: Mapping[ToolFormat, Callable[[AnswerShape, ToolFormat], _Calls]] = {
    "hermes": _Hermes,
    "llama3": _Llama3,
    "mistral": _Mistral,
}


def _thought(shape: AnswerShape) -> list[str]:
    """Of `start`. An answer that is bound to nothing but calls, if it makes any, may also end in mid-thought."""
    if shape.thought is None or shape.thought == "over":
        return ["start: body"]
    begin, end = shape.marker(reasoning.BEGIN), shape.marker(reasoning.END)
    opened = shape.thought == "begun"
    closing = f"{ANY}{regex(end.text)}"
    may_end = not shape.must and not shape.answers
    if end.id is not None and (opened or begin.id is not None):
        before = "" if opened else f"SPACE {begin.rule} "
        thought = terminal("THOUGHT", ANY, [closing + ANY] if end.spelt else [])
        rules = [f"thought: {before}THOUGHT {end.rule} BREAK", f"unended: {before}THOUGHT", thought]
    else:
        first = "" if opened else SPACE + regex(begin.text)
        unended = terminal("UNENDED", first + ANY, [closing + ANY])
        rules = ["thought: ended BREAK", f"ended[lazy]: /{first}{closing}/", "unended: UNENDED", unended]
    start = ["thought body", *(["body"] if not opened else []), *(["unended"] if may_end else [])]
    return ["start: " + " | ".join(start), *rules, f"SPACE: /{SPACE}/", f"BREAK: /{BREAK}/"]


def _opening_thought(shape: AnswerShape) -> list[str]:
    """What the body's text may not match: it would be reasoning."""
    if shape.thought not in ("none", "over") or not shape.marker(reasoning.BEGIN).spelt:
        return []
    return [BLANK + regex(shape.marker(reasoning.BEGIN).text) + ANY]


def terminal(name: str, pattern: str, unlike: Sequence[str]) -> str:
    return " & ".join([f"{name}: /{pattern}/", *(f"~/{one}/" for one in unlike)])


def literal(text: str) -> str:
    return json.dumps(text)


def regex(text: str) -> str:
    """What matches this text, between the slashes of Lark."""
    return re.escape(text).replace("/", r"\/")
