"""Tool calls in an answer's text: found however it was cut, valid when whole, and nothing of the text is lost."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.router.parsers.tools.events import (
    CallAbandoned,
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    ToolEvent,
    ToolParser,
)
from octavo.router.parsers.tools.formats import detect, tool_parser
from octavo.router.parsers.tools.json_scanner import MAX_DEPTH, JsonScanner

NAMES = ("f", "get_weather")
KINDS = ("hermes", "llama3", "mistral")


@dataclass
class Heard:
    """calls: name and arguments of whole ones. abandoned: of abandoned calls."""

    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    abandoned: list[tuple[str, str]] = field(default_factory=list)
    open: tuple[str, str] | None = None

    def hear(self, events: Sequence[ToolEvent]) -> None:
        for event in events:
            if isinstance(event, Content):
                assert self.open is None and event.text, "content never comes inside a call, and is never empty"
                self.content += event.text
            elif isinstance(event, CallBegin):
                assert self.open is None
                self.open = (event.name, "")
            else:
                assert self.open is not None
                self._go_on(self.open, event)

    def _go_on(self, call: tuple[str, str], event: ToolEvent) -> None:
        if isinstance(event, CallArguments):
            self.open = (call[0], call[1] + event.text)
            return
        self.open = None
        assert isinstance(event, CallEnd | CallAbandoned)
        (self.calls if isinstance(event, CallEnd) else self.abandoned).append(call)


def parser(kind: str) -> ToolParser:
    return tool_parser(kind, NAMES, lambda marker: marker)  # type: ignore[arg-type]  # a parameter's


def parsed(kind: str, pieces: Sequence[str]) -> Heard:
    heard, made = Heard(), parser(kind)
    for piece in pieces:
        heard.hear(made.push(piece))
    heard.hear(made.finish())
    assert heard.open is None, "a call that has begun ends"
    return heard


def cut(text: str, places: Sequence[int]) -> list[str]:
    marks = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(marks)]


HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": [1, {"b": "}"}]}}\n</tool_call>'
WHOLE: dict[str, tuple[str, str, str, list[tuple[str, str]]]] = {
    "hermes": ("hermes", HERMES, "", [("f", '{"a": [1, {"b": "}"}]}')]),
    "hermes after text": ("hermes", "Let me see.\n" + HERMES, "Let me see.\n", [("f", '{"a": [1, {"b": "}"}]}')]),
    "hermes twice": ("hermes", HERMES + "\n" + HERMES, "", [("f", '{"a": [1, {"b": "}"}]}')] * 2),
    "hermes and text after": ("hermes", HERMES + "\n\nDone.", "\n\nDone.", [("f", '{"a": [1, {"b": "}"}]}')]),
    "hermes without an end": ("hermes", HERMES.removesuffix("\n</tool_call>"), "", [("f", '{"a": [1, {"b": "}"}]}')]),
    "hermes any tool": (
        "hermes",
        '<tool_call>{"name": "unheard", "arguments": {}}</tool_call>',
        "",
        [("unheard", "{}")],
    ),
    "hermes name last": (
        "hermes",
        '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>',
        "",
        [("f", '{"a": 1}')],
    ),
    "hermes no arguments": ("hermes", '<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
    "hermes null": ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", "{}")]),
    "hermes spelt": (
        "hermes",
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        [("f", '{"a": 1}')],
    ),
    "hermes other keys": (
        "hermes",
        '<tool_call>{"id": 5, "name": "f", "arguments": {}}</tool_call>',
        "",
        [("f", "{}")],
    ),
    "hermes brace missing": ("hermes", '<tool_call>{"name": "f", "arguments": {}</tool_call>', "", [("f", "{}")]),
    "hermes brace too many": ("hermes", '<tool_call>{"name": "f", "arguments": {}}}', "}", [("f", "{}")]),
    "hermes cut after arguments": ("hermes", '<tool_call>{"name": "f", "arguments": {}', "", [("f", "{}")]),
    "hermes twice arguments": (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": 1}, "arguments": {}}',
        ', "arguments": {}}',
        [("f", '{"a": 1}')],
    ),
    "llama3 brace missing": ("llama3", '{"name": "f", "parameters": {}', "", [("f", "{}")]),
    "mistral brace missing": ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}]', "", [("f", "{}")]),
    "hermes text": ("hermes", "1 < 2 and <tool_cal> is no marker", "1 < 2 and <tool_cal> is no marker", []),
    "hermes blank": ("hermes", " \n ", " \n ", []),
    "llama3": ("llama3", '{"name": "f", "parameters": {"a": 1}}', "", [("f", '{"a": 1}')]),
    "llama3 typed": ("llama3", '{"type": "function", "name": "f", "parameters": {}}', "", [("f", "{}")]),
    "llama3 twice": (
        "llama3",
        '{"name": "f", "parameters": {"a": 1}}; {"name": "get_weather", "arguments": {}}',
        "",
        [("f", '{"a": 1}'), ("get_weather", "{}")],
    ),
    "llama3 in lines": (
        "llama3",
        '{"name": "f", "parameters": {}}\n{"name": "f", "parameters": {}}',
        "",
        [("f", "{}")] * 2,
    ),
    "llama3 tagged": (
        "llama3",
        'So: <|python_tag|>{"name": "x", "parameters": {"a": "b"}}',
        "So: ",
        [("x", '{"a": "b"}')],
    ),
    "llama3 after a line": ("llama3", 'I ask:\n{"name": "f", "parameters": {}}', "I ask:\n", [("f", "{}")]),
    "llama3 after a call and a line": (
        "llama3",
        '{"name": "f", "parameters": {}}\nAnd:\n {"name": "g", "parameters": {}}\n{"name": "f", "parameters": {}}',
        '\nAnd:\n {"name": "g", "parameters": {}}\n',
        [("f", "{}")] * 2,
    ),
    "llama3 after a call, within a line": (
        "llama3",
        '{"name": "f", "parameters": {}} and {"name": "f", "parameters": {}}',
        ' and {"name": "f", "parameters": {}}',
        [("f", "{}")],
    ),
    "llama3 data": ("llama3", '{"name": "Bob", "age": 5}', '{"name": "Bob", "age": 5}', []),
    "llama3 unheard": ("llama3", '{"name": "g", "parameters": {}}', '{"name": "g", "parameters": {}}', []),
    "llama3 without arguments": ("llama3", '{"name": "f"}', '{"name": "f"}', []),
    "llama3 inside": ("llama3", 'As {"name": "f", "parameters": {}}', 'As {"name": "f", "parameters": {}}', []),
    "llama3 code": ("llama3", "f() {\n  {}\n}", "f() {\n  {}\n}", []),
    "mistral list": (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}, "id": "123456789"}]',
        "",
        [("f", '{"a": 1}'), ("g", "{}")],
    ),
    "mistral after text": ("mistral", 'Hm.[TOOL_CALLS][{"name": "f", "arguments": {}}]', "Hm.", [("f", "{}")]),
    "mistral alone": ("mistral", '[TOOL_CALLS]{"name": "f", "arguments": {}}', "", [("f", "{}")]),
    "mistral names": ("mistral", '[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g-2{}', "", [("f", '{"a": 1}'), ("g-2", "{}")]),
    "mistral ids": ("mistral", '[TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{"a": 1}', "", [("f", '{"a": 1}')]),
    "mistral args": ("mistral", "[TOOL_CALLS]f[ARGS]{}", "", [("f", "{}")]),
    "mistral list not closed": ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}}', "", [("f", "{}")]),
    "mistral text": ("mistral", "a [TOOL] and [1, 2]", "a [TOOL] and [1, 2]", []),
}


@pytest.mark.parametrize("name", WHOLE)
@given(places=st.lists(st.integers(0, 300), max_size=12))
@settings(max_examples=20)
def test_calls_are_found_however_the_text_comes(name: str, places: list[int]) -> None:
    kind, text, content, calls = WHOLE[name]
    for pieces in (cut(text, places), list(text), [text]):
        heard = parsed(kind, pieces)
        assert (heard.content, heard.calls, heard.abandoned) == (content, calls, [])


BROKEN = [
    ("hermes", "<tool_call>"),
    ("hermes", "<tool_call>\nno object\n</tool_call>"),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1'),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": "no object"}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "line\nbreak"}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f" "arguments": {}}</tool_call> and text'),
    ("hermes", "<tool_call>" + '{"name": "f", "arguments": ' + '{"a":' * 200),
    ("llama3", '{"name": "f", "parameters": {"a": 1'),
    ("llama3", '{"name": "f", "parameters": {"a": x}}'),
    ("llama3", "<|python_tag|>print(1)"),
    ("llama3", '<|python_tag|>{"name": "f", "parameters": 5}'),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral", "[TOOL_CALLS] []"),
    ("mistral", "[TOOL_CALLS] [5]"),
    ("mistral", "[TOOL_CALLS] no call at all"),
    ("mistral", "[TOOL_CALLS] " + "long " * 50 + "{}"),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1'),
    ("mistral", '[TOOL_CALLS]f{"a": 1,}'),
    ("mistral", '[TOOL_CALLS] [{"nam'),
    ("mistral", '[TOOL_CALLS]f{"a": 1'),
    ("mistral", "[TOOL_CALLS]f"),
]


@pytest.mark.parametrize(("kind", "text"), BROKEN)
@given(places=st.lists(st.integers(0, 300), max_size=12))
@settings(max_examples=20)
def test_what_is_no_call_is_content_as_it_was_written(kind: str, text: str, places: list[int]) -> None:
    for pieces in (cut(text, places), list(text)):
        heard = parsed(kind, pieces)
        assert (heard.content, heard.calls) == (text, [])


SNIPPETS = [
    '{"name": "f", "arguments": {"a": 1}}',
    '{"name": "get_weather", "parameters": {}}',
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "[",
    "]",
    "{",
    "}",
    ", ",
    ";",
    "\n",
    " ",
    "f",
    '"name": "f"',
    "text",
    '"',
    "\\",
    "[ARGS]",
    "<tool",
    "é",
]


@pytest.mark.parametrize("kind", KINDS)
@given(parts=st.lists(st.sampled_from(SNIPPETS), max_size=20), places=st.lists(st.integers(0, 300), max_size=20))
def test_any_text_is_heard_the_same_in_any_pieces_and_calls_are_valid(
    kind: str, parts: list[str], places: list[int]
) -> None:
    text = "".join(parts)
    whole = parsed(kind, [text])
    assert parsed(kind, cut(text, places)) == whole == parsed(kind, list(text))
    for _, arguments in whole.calls:
        assert isinstance(json.loads(arguments), dict)
    for _, arguments in whole.abandoned:
        with pytest.raises(ValueError):
            json.loads(arguments)
    heard = whole.content + "".join(name + arguments for name, arguments in whole.calls)
    for letter in "é", "x":  # never in a marker
        assert heard.count(letter) == text.count(letter)


@pytest.mark.parametrize(
    ("kind", "begin", "other"),
    [
        ("hermes", "<tool_call>", "<tool_calm>"),
        ("mistral", "[TOOL_CALLS]", "[TOOL_CABS]"),
        ("llama3", "<|python_tag|>", "<|python_tax|>"),
    ],
)
def test_half_a_marker_is_held_only_while_it_may_become_one(kind: str, begin: str, other: str) -> None:
    made, shown = parser(kind), ""
    for at, character in enumerate("Well, " + other, 1):
        shown += "".join(event.text for event in made.push(character) if isinstance(event, Content))
        held = ("Well, " + other)[len(shown) : at]
        assert begin.startswith(held)
    assert shown == "Well, " + other


@pytest.mark.parametrize("text", ['{"no', '{"name": "get_wo', "{5", '{"name": 5', '{"name": "f", "x'])
def test_an_object_that_is_no_call_is_held_only_until_it_shows(text: str) -> None:
    made = parser("llama3")
    before = [event for character in text[:-1] for event in made.push(character)]
    assert before == []
    assert "".join(event.text for event in made.push(text[-1]) if isinstance(event, Content)) == text


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": ', "}</tool_call>"),
        ("llama3", '{"name": "f", "parameters": ', "}"),
        ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": ', "}]"),
        ("mistral", "[TOOL_CALLS]f", ""),
    ],
)
@given(
    arguments=st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    ),
    indent=st.sampled_from([None, 2]),
    ascii=st.booleans(),
)
@settings(max_examples=40)
def test_arguments_are_shown_as_they_come_and_are_the_models_own(
    kind: str, before: str, after: str, arguments: dict[str, Any], indent: int | None, ascii: bool
) -> None:
    text = json.dumps(arguments, indent=indent, ensure_ascii=ascii)
    made, heard = parser(kind), Heard()
    heard.hear(made.push(before))
    for at, character in enumerate(text[:-1], 1):
        heard.hear(made.push(character))
        assert heard.open == ("f", text[:at]), "nothing is held back"
    heard.hear(made.push(text[-1] + after) + made.finish())
    assert heard.calls == [("f", text)] and heard.content == ""


VALUES = ["0", "-0.5e+7", '"a\\u00e9\\n"', "true", "[]", "{}", '[1, [2, {"a": null}], ""]', '{"a": {"b": [false]}}']
WRONG = [
    "01",
    "1.",
    ".5",
    "+1",
    "trux",
    "nul1",
    "[1,]",
    "{,}",
    '{"a"}',
    '{"a": 1,}',
    '"\x01"',
    '"\\x"',
    '"\\u12g4"',
    "}",
    "[1 2]",
    "NaN",
]


@pytest.mark.parametrize("text", VALUES)
def test_a_json_value_ends_where_it_ends(text: str) -> None:
    for pieces in ([text + " rest"], [*text, " ", "rest"]):
        scanner, taken = JsonScanner(), ""
        for piece in pieces:
            taken += piece[: scanner.scan(piece)]
        assert scanner.done and taken == text


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_json_fails(text: str) -> None:
    for wrap in (text, f"[{text}]"):
        scanner = JsonScanner()
        scanner.scan(wrap + " ")
        assert scanner.failed and not scanner.done


def test_json_is_followed_to_a_depth() -> None:
    for depth, good in ((MAX_DEPTH, True), (MAX_DEPTH + 1, False)):
        scanner = JsonScanner()
        scanner.scan("[" * depth + "]" * depth)
        assert (scanner.done, scanner.failed) == (good, not good)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_every_json_list_is_one(value: Any) -> None:
    text = json.dumps([value])
    scanner = JsonScanner()
    assert scanner.scan(text) == len(text) and scanner.done


def test_the_format_is_detected_from_the_template() -> None:
    assert detect("... <tool_call> ...") == "hermes"
    assert detect("... <tool_call>\n<function=x> ...") is None
    assert detect("... [TOOL_CALLS] ...") == "mistral"
    assert detect("... <|python_tag|> ...") == "llama3"
    assert detect('<|start_header_id|> {"name": x, "parameters": y}') == "llama3"
    assert detect("<|im_start|>") is None
