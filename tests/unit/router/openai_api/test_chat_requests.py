"""The fields of chats that others do not have: messages with calls, tools, and how the template is rendered."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.messages import ToolCall
from octavo.router.openai_api.openai import ParsedRequest, parse
from octavo.router.openai_api.tools.definitions import ToolUse
from octavo.router.text.templates import ChatTemplate

TEMPLATE = ChatTemplate("{{ messages | tojson }}{{ tools | tojson }}{{ documents | tojson }}", {}, ["<|a|>", "}}"])
USER = {"role": "user", "content": "x"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def asked(**body: Any) -> ParsedRequest:
    return parse("chat", {"messages": [USER]} | body)


def refused(**body: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        asked(**body)
    assert caught.value.status == 400 and caught.value.type == "invalid_request_error" and caught.value.message
    return caught.value


def made(**function: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}


def test_a_conversation_with_calls_is_taken_as_clients_send_it_back() -> None:
    call = {"id": "call_1", "type": "function", "index": 0, "function": {"name": "f", "arguments": '{"a": 1}'}}
    echoed = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [call]}
    answer = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "ok"}]}
    last = {"role": "assistant", "content": "y", "reasoning_content": "hm", "reasoning": "hm", "tool_calls": None}
    _, called, answered, said = asked(messages=[USER, echoed, answer, last]).messages
    assert (called.content, called.tool_calls) == (None, (ToolCall("f", {"a": 1}, "call_1"),))
    assert (answered.role, answered.content, answered.tool_call_id) == ("tool", ("ok",), "call_1")
    assert (said.content, said.reasoning, said.tool_calls) == ("y", "hm", ())


def test_a_call_without_arguments_may_have_an_empty_string() -> None:
    for text in ("", None, "{}"):
        assert asked(messages=[made(name="f", arguments=text)]).messages[0].tool_calls[0].arguments == {}


DEEP: Any = {}
for _ in range(100):
    DEEP = {"a": DEEP}
BAD_MESSAGES = [
    ({"role": "assistant"} | {"tool_calls": {}} | {"tool_calls": {"a": 1}}, "tool_calls"),
    ({"role": "assistant", "tool_calls": [5]}, "tool_calls[0]"),
    ({"role": "assistant", "tool_calls": [{"type": "code"}]}, "tool_calls[0].type"),
    ({"role": "assistant", "tool_calls": [{"type": "function"}]}, "tool_calls[0].function"),
    ({"role": "assistant", "tool_calls": [{"kind": 1}]}, "tool_calls[0].kind"),
    ({"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]}, "tool_calls[0].id"),
    ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}] * 129}, "tool_calls"),
    (made(arguments="{}"), "tool_calls[0].function.name"),
    (made(name=5), "tool_calls[0].function.name"),
    (made(name="f" * 300), "tool_calls[0].function.name"),
    (made(name="f", arguments={"a": 1}), "tool_calls[0].function.arguments"),
    (made(name="f", arguments="{"), "tool_calls[0].function.arguments"),
    (made(name="f", arguments="[1]"), "tool_calls[0].function.arguments"),
    ({"role": "user", "content": "x", "tool_calls": [{}]}, "tool_calls"),
    ({"role": "user", "content": None}, "content"),
    ({"role": "tool", "tool_call_id": "1", "content": None}, "content"),
    ({"role": "tool", "content": "x", "tool_call_id": 5}, "tool_call_id"),
    ({"role": "user", "content": "x", "tool_call_id": "1"}, "tool_call_id"),
    ({"role": "user", "content": "x", "reasoning": "y"}, "reasoning"),
    ({"role": "assistant", "content": "x", "reasoning_content": 5}, "reasoning_content"),
    ({"role": "assistant", "content": "x", "function_call": {"name": "f"}}, "function_call"),
    ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "content[0].type"),
]


@pytest.mark.parametrize(("message", "field"), BAD_MESSAGES)
def test_a_bad_message_is_refused_with_its_place(message: dict[str, Any], field: str) -> None:
    assert refused(messages=[USER, message]).field == f"messages[1].{field}"


BAD_TOOLS = [
    ({}, "tools"),
    ([5], "tools[0]"),
    ([{"type": "web_search"}], "tools[0].type"),
    ([{"type": "function"}], "tools[0].function"),
    ([TOOL | {"more": 1}], "tools[0].more"),
    ([{"type": "function", "function": {}}], "tools[0].function.name"),
    ([{"type": "function", "function": {"name": "a b"}}], "tools[0].function.name"),
    ([{"type": "function", "function": {"name": "a" * 65}}], "tools[0].function.name"),
    ([{"type": "function", "function": {"name": "a", "description": 5}}], "tools[0].function.description"),
    ([{"type": "function", "function": {"name": "a", "parameters": []}}], "tools[0].function.parameters"),
    ([{"type": "function", "function": {"name": "a", "strict": 1}}], "tools[0].function.strict"),
    ([{"type": "function", "function": {"name": "a", "more": 1}}], "tools[0].function.more"),
    ([TOOL, TOOL], "tools[1].function.name"),
    ([TOOL] * 129, "tools"),
    ([{"type": "function", "function": {"name": "a", "parameters": DEEP}}], "tools"),
    ([{"type": "function", "function": {"name": "a", "description": "x" * 300_000}}], "tools"),
]


@pytest.mark.parametrize(("tools", "field"), BAD_TOOLS)
def test_a_bad_tool_is_refused_with_its_place(tools: object, field: str) -> None:
    assert refused(tools=tools).field == field
    if tools:
        assert refused(tools=tools, tool_choice="none").field == field


def test_tools_are_handed_over_as_they_were_given_without_nulls() -> None:
    given = {"type": "function", "function": {"name": "f", "strict": None, "parameters": {"x": None}}}
    ask = asked(tools=[given], tool_choice="auto")
    assert ask.rendering.tools == ({"type": "function", "function": {"name": "f", "parameters": {"x": None}}},)
    assert ask.tool_use == ToolUse(("f",), True)
    assert asked(tools=[TOOL], parallel_tool_calls=False).tool_use == ToolUse(("f",), False)
    assert asked(tools=[TOOL], parallel_tool_calls=True).tool_use == ToolUse(("f",), True)


def test_without_tools_to_call_nothing_is_rendered_or_looked_for() -> None:
    for body in ({}, {"tools": []}, {"tools": None}, {"tools": [TOOL], "tool_choice": "none"}, {"tool_choice": "auto"}):
        ask = asked(**body)
        assert (ask.rendering.tools, ask.tool_use) == ((), None)


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        ("f", "tool_choice"),
        (5, "tool_choice"),
        ({}, "tool_choice"),
        ({"type": "custom", "custom": {"name": "f"}}, "tool_choice"),
        ({"type": "function"}, "tool_choice"),
        ({"type": "function", "function": {"name": "other"}}, "tool_choice.function.name"),
        ({"type": "function", "function": {"name": "f", "x": 1}}, "tool_choice.function.x"),
        ({"type": "function", "function": {"name": "f"}, "x": 1}, "tool_choice.x"),
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools"),
        ({"type": "allowed_tools", "allowed_tools": {}}, "tool_choice.allowed_tools.mode"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
            "tool_choice.allowed_tools.tools",
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["f"]}},
            "tool_choice.allowed_tools.tools[0]",
        ),
    ],
)
def test_a_choice_that_means_nothing_is_refused_by_name(choice: object, field: str) -> None:
    assert refused(tools=[TOOL], tool_choice=choice).field == field


def test_a_choice_tells_what_may_be_called_and_whether_something_must() -> None:
    named = {"type": "function", "function": {"name": "f"}}
    other = {"type": "function", "function": {"name": "g", "strict": True}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    for choice, use in (
        ("auto", ToolUse(("f", "g"), strict=("g",), bound=True)),
        ("required", ToolUse(("f", "g"), mode="required", strict=("f", "g"), bound=True)),
        (named, ToolUse(("f",), mode="named", strict=("f",), bound=True)),
        (allowed, ToolUse(("f",), bound=True)),
    ):
        ask = asked(tools=[TOOL, other], tool_choice=choice)
        assert ask.tool_use == use and len(ask.rendering.tools) == 2
    assert refused(tools=[], tool_choice="required").field == "tool_choice"
    for more in ({"ignore_eos": True}, {"min_tokens": 3}):
        assert refused(tools=[TOOL], tool_choice="required", **more).field == next(iter(more))


def test_how_the_template_is_rendered_is_taken_over() -> None:
    ask = asked(
        documents=[{"text": "a"}],
        chat_template_kwargs={"enable_thinking": False, "n": [1, {"a": None}]},
        reasoning_effort="low",
        add_generation_prompt=False,
    )
    assert ask.rendering.documents == ({"text": "a"},)
    assert ask.rendering.variables == {"enable_thinking": False, "n": [1, {"a": None}], "reasoning_effort": "low"}
    assert (ask.rendering.add_generation_prompt, ask.rendering.continue_final_message) == (False, False)
    continued = asked(continue_final_message=True).rendering
    assert (continued.add_generation_prompt, continued.continue_final_message) == (False, True)


BAD = [
    ({"documents": {}}, "documents"),
    ({"documents": ["x"]}, "documents[0]"),
    ({"documents": [{}] * 1001}, "documents"),
    ({"documents": [DEEP]}, "documents"),
    ({"reasoning_effort": "utmost"}, "reasoning_effort"),
    ({"reasoning_effort": 5}, "reasoning_effort"),
    ({"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}}, "reasoning_effort"),
    ({"add_generation_prompt": 1}, "add_generation_prompt"),
    ({"continue_final_message": "yes"}, "continue_final_message"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_invalid_template_fields_are_refused(body: dict[str, Any], field: str) -> None:
    assert refused(**body).field == field


KEYS = st.sampled_from("role content name type text tool_calls tool_call_id function arguments parameters id".split())
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5),
    max_leaves=12,
)
FIELDS = "messages tools tool_choice parallel_tool_calls documents chat_template_kwargs reasoning_effort".split()
FIELDS += ["add_generation_prompt", "continue_final_message"]


@given(st.dictionaries(st.sampled_from(FIELDS), ANY | st.lists(st.dictionaries(KEYS, ANY, max_size=5), max_size=2)))
@settings(max_examples=300)
def test_any_json_is_taken_or_refused_by_name(body: dict[str, Any]) -> None:
    try:
        ask = asked(**body)
        TEMPLATE.render(ask.messages, ask.rendering)
    except RequestError as error:
        assert error.status == 400 and error.field and error.message


@pytest.mark.parametrize("name", ["tools", "tool_choice", "documents", "chat_template_kwargs", "reasoning_effort"])
def test_completions_know_none_of_it(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse("completion", {"prompt": "x", name: [1]})
    assert caught.value.field == name
