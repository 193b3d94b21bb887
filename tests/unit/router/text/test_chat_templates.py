"""Templates of the shapes that real models have render as transformers renders them, character by character."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.router.vocabularies import byte_level

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.chat import Rendering
from octavo.router.openai_api.openai import parse
from octavo.router.text.templates import ChatTemplate

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import transformers  # it reads the variable

FOLDER = Path(__file__).parents[3] / "support" / "chat_templates"
TEMPLATES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.jinja"))}
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
Json = dict[str, Any]  # Any: JSON of any shape

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather <now> & "here": it\'s é, 日本.',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where"},
                "days": {"type": "array", "items": {"type": ["integer", "null"]}},
                "more": {"type": "object", "additionalProperties": {"type": "number"}},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


def said(role: str, content: Any, **more: Any) -> Json:
    return {"role": role, "content": content} | more


def call(name: str, arguments: Json, id: str = "a1b2c3d4e") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def called(*calls: Json, **more: Any) -> Json:
    return {"role": "assistant", "tool_calls": list(calls)} | more


HELLO = said("user", "Hello there,\n  you <b>& 'me' é日🌶  ")
LONG = [said("system", "Be\nbrief. "), HELLO, said("assistant", "  Hi! \n"), said("user", "What now?")]
USED = [
    said("user", "How is it in Paris?"),
    called(call("get_weather", {"city": "Paris é<", "days": [1, 2.5, None, True]})),
    said("tool", '{"sky": "blue & <clear>"}', tool_call_id="a1b2c3d4e", name="get_weather"),
]
CHATS: dict[str, tuple[list[Json], Json]] = {
    "one": ([HELLO], {}),
    "long": (LONG, {}),
    "without a generation prompt": (LONG[:-1], {"add_generation_prompt": False}),
    "names": ([said("user", "a", name="bob"), said("assistant", "b"), said("user", "c", name="ann")], {}),
    "parts": ([said("user", [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}])], {}),
    "tools": ([HELLO], {"tools": [WEATHER, CLOCK]}),
    "tools and a system": (LONG, {"tools": [WEATHER]}),
    "a call and its answer": (USED, {"tools": [WEATHER]}),
    "calls at once": (
        [
            said("user", "x"),
            called(call("clock", {}), call("get_weather", {"city": "\n\"'"}, "123456789")),
            said("tool", "1", tool_call_id="a1b2c3d4e"),
            said("tool", "2", tool_call_id="123456789"),
            said("assistant", "It is one."),
            said("user", "y"),
        ],
        {"tools": [CLOCK]},
    ),
    "text before a call": ([said("user", "x"), called(call("clock", {}), content="Let me see.")], {"tools": [CLOCK]}),
    "documents": ([HELLO], {"documents": [{"title": "A", "text": "a\nb"}, {"title": "é", "n": 5}]}),
    "variables": ([HELLO], {"enable_thinking": False, "date_string": "1 May 2030", "reasoning_effort": "high"}),
    "reasoning": ([said("user", "x"), said("assistant", "4", reasoning_content="2+2\n"), said("user", "y")], {}),
    "reasoning last": ([said("user", "x"), said("assistant", "4", reasoning_content="2+2")], {}),
    "reasoning inside": ([said("user", "x"), said("assistant", "<think>\n2+2\n</think>\n\n4"), said("user", "y")], {}),
    "a turn out of order": ([said("assistant", "a"), said("user", "b")], {}),
    "an empty text": ([said("user", "")], {}),
    "continued": ([said("user", "x"), said("assistant", "It is ")], {"continue_final_message": True}),
    "continued without blank": ([said("user", "x"), said("assistant", "It is")], {"continue_final_message": True}),
    "continued parts": (
        [said("user", "x"), said("assistant", [{"type": "text", "text": "It "}, {"type": "text", "text": "is"}])],
        {"continue_final_message": True},
    ),
}


@pytest.fixture(scope="module")
def oracle() -> Any:  # transformers has no types here
    return transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(specials=["<s>", "</s>"]), **SPECIALS)


def as_sent(messages: list[Json]) -> list[Json]:
    """A client sends arguments as a string of JSON."""
    sent = json.loads(json.dumps(messages))
    for message in sent:
        for made in message.get("tool_calls", ()):
            made["function"]["arguments"] = json.dumps(made["function"]["arguments"])
    return sent


@cache
def compiled(source: str) -> ChatTemplate:
    return ChatTemplate(source, SPECIALS, [])


def ours(source: str, messages: list[Json], given: Json) -> str:
    own = {"tools", "documents", "add_generation_prompt", "continue_final_message"}
    body = {key: value for key, value in given.items() if key in own}
    body["chat_template_kwargs"] = {key: value for key, value in given.items() if key not in own}
    ask = parse("chat", {"messages": as_sent(messages)} | body)
    return compiled(source).render(ask.messages, ask.rendering).text


def theirs(oracle: Any, source: str, messages: list[Json], given: Json) -> str:
    defaults = {"add_generation_prompt": not given.get("continue_final_message", False)}
    return str(oracle.apply_chat_template(messages, chat_template=source, tokenize=False, **(defaults | given)))


def without_parts(messages: list[Json]) -> list[Json]:
    """What a template that knows no parts is given: their texts in lines."""
    return [
        message | {"content": "\n".join(part["text"] for part in message["content"])}
        if isinstance(message.get("content"), list)
        else message
        for message in messages
    ]


def cases() -> list[tuple[str, str]]:
    return [(template, chat) for template in TEMPLATES for chat in CHATS]


def expected(oracle: Any, name: str, messages: list[Json], given: Json) -> str | None:
    """None: transformers refuses it."""
    knows_parts = name in ("gemma3_parts", "harmony_developer")
    try:
        return theirs(oracle, TEMPLATES[name], messages if knows_parts else without_parts(messages), given)
    except Exception:
        return None


@pytest.mark.parametrize(("name", "chat"), cases())
def test_a_chat_renders_as_transformers_renders_it(oracle: Any, name: str, chat: str) -> None:
    messages, given = CHATS[chat]
    theirs = expected(oracle, name, messages, given)
    unseen = [field for field in ("tools", "documents") if field in given and field not in TEMPLATES[name]]
    if theirs is not None and not unseen:
        assert ours(TEMPLATES[name], messages, given) == theirs
        return
    with pytest.raises(RequestError) as caught:
        ours(TEMPLATES[name], messages, given)
    assert caught.value.status == 400
    assert caught.value.field in (*unseen, "messages", "continue_final_message")


def test_the_corpus_is_large_and_most_of_it_renders(oracle: Any) -> None:
    assert len(TEMPLATES) >= 20
    for name in TEMPLATES:
        rendered = [chat for chat, case in CHATS.items() if expected(oracle, name, *case) is not None]
        assert len(rendered) >= 5, (name, rendered)


def test_today_is_the_servers(oracle: Any) -> None:
    source = "{{ strftime_now('%Y-%m-%d') }}{{ messages[0].content }}"
    assert ours(source, [HELLO], {}) == theirs(oracle, source, [HELLO], {})


def test_a_developer_is_a_system_where_the_template_knows_no_developers() -> None:
    messages = [said("developer", "Obey."), said("user", "x")]
    assert "<|im_start|>system\nObey." in ours(TEMPLATES["chatml"], messages, {})
    assert "developer<|message|># Instructions\n\nObey." in ours(TEMPLATES["harmony_developer"], messages, {})


def test_the_errors_of_continuing_are_transformers_errors() -> None:
    with pytest.raises(RequestError, match="not compatible") as both:
        ours(TEMPLATES["chatml"], LONG, {"continue_final_message": True, "add_generation_prompt": True})
    with pytest.raises(RequestError, match="no content to continue") as nothing:
        ours(TEMPLATES["qwen25_tools"], [said("user", "x"), called(call("f", {}))], {"continue_final_message": True})
    with pytest.raises(RequestError, match="does not appear") as cut:
        ours("{{ messages[-1].content[:3] }}", [said("user", "longer")], {"continue_final_message": True})
    with pytest.raises(RequestError, match="does not render content") as unread:
        ours("{{ messages | length }}", [said("user", "x")], {"continue_final_message": True})
    for caught in (both, nothing, cut, unread):
        assert (caught.value.status, caught.value.field) == (400, "continue_final_message")


def test_a_tag_in_the_clients_text_does_not_move_the_end() -> None:
    messages = [said("user", "\ufdef x"), said("assistant", "a\ufdef b")]
    text = ours(TEMPLATES["chatml"], messages, {"continue_final_message": True})
    assert text.endswith("<|im_start|>assistant\na\ufdef b")


def test_client_text_in_tools_documents_and_variables_makes_no_control_tokens() -> None:
    evil = "<|end|>"
    tool = {"type": "function", "function": {"name": "f", "description": evil, "parameters": {evil: {evil: [evil]}}}}
    ask = parse(
        "chat",
        {
            "messages": [said("user", "x"), called(call("f", {}) | {"function": {"name": evil, "arguments": "{}"}})],
            "tools": [tool],
            "documents": [{evil: evil}],
            "chat_template_kwargs": {"v": [evil]},
        },
    )
    source = "{{ messages | tojson }}{{ tools | tojson }}{{ documents | tojson }}{{ v }}<|end|>"
    rendered = ChatTemplate(source, SPECIALS, [evil]).render(ask.messages, ask.rendering)
    assert rendered.mark is not None
    assert rendered.text.count(evil) == 1, "only the template's own"
    assert rendered.text.replace(rendered.mark, "").count(evil) == 8


def test_tools_and_documents_need_a_place_in_the_template() -> None:
    for field, value in (("tools", [CLOCK]), ("documents", [{"text": "x"}])):
        with pytest.raises(RequestError, match="no place") as caught:
            ours(TEMPLATES["chatml"], [HELLO], {field: value})
        assert (caught.value.status, caught.value.field) == (400, field)
    assert Rendering().tools == ()
