"""/v1/responses: what its input becomes, what it refuses, and in whose words it complains."""

import pytest

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.responses.response_items import conversation
from octavo.router.openai_api.responses.response_request import REFUSED, parse_response
from octavo.router.openai_api.structured import Structured
from octavo.router.openai_api.tools.definitions import ToolUse


def refused(body: dict[str, object]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse_response(body)
    assert caught.value.status == 400
    return caught.value


def test_a_string_is_a_users_message_after_the_instructions() -> None:
    ask = parse_response({"input": "hi", "instructions": "be kind", "max_output_tokens": 5, "temperature": 0})
    assert [(message.role, message.content) for message in ask.messages] == [("developer", "be kind"), ("user", "hi")]
    assert (ask.kind, ask.max_tokens, ask.sampling.temperature) == ("response", 5, 0.0)
    assert ask.echo is not None and ask.echo["instructions"] == "be kind" and ask.echo["max_output_tokens"] == 5


def test_items_in_all_their_spellings_become_messages() -> None:
    ask = parse_response(
        {
            "input": [
                {"role": "developer", "content": "rules"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {
                    "type": "message",
                    "id": "msg_1",
                    "status": "completed",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}],
                },
                {"role": "user", "content": "more"},
            ]
        }
    )
    assert [(m.role, m.content) for m in ask.messages] == [
        ("developer", "rules"),
        ("user", ("hi",)),
        ("assistant", ("hello",)),
        ("user", "more"),
    ]


def test_function_calls_of_one_turn_become_one_assistants_message() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    found = conversation(None, [{"role": "user", "content": "x"}, call, call | {"call_id": "c2"}, output])
    assert [message["role"] for message in found.messages] == ["user", "assistant", "tool"]
    assert [one["id"] for one in found.messages[1]["tool_calls"]] == ["c1", "c2"]
    assert found.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert found.messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "42"}


BAD_INPUTS = [
    (None, "input"),
    (5, "input"),
    ([], "input"),
    ({}, "input"),
    ([5], "input[0]"),
    ([{"role": "boss", "content": "x"}], "input[0].role"),
    ([{"role": "tool", "content": "x"}], "input[0].role"),
    ([{"role": "user"}], "input[0].content"),
    ([{"role": "user", "content": []}], "input[0].content"),
    ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
    ([{"role": "user", "content": "x", "weight": 1}], "input[0].weight"),
    ([{"type": "item_reference", "id": "x"}], "input[0].type"),
    ([{"type": "reasoning", "summary": []}], "input[0].type"),
    ([{"type": 5}], "input[0].type"),
    ([{"type": "function_call", "name": "f", "arguments": "{}"}], "input[0].call_id"),
    ([{"type": "function_call_output", "call_id": "c", "output": 5}], "input[0].output"),
]


@pytest.mark.parametrize(("given", "field"), BAD_INPUTS)
def test_a_bad_item_is_refused_with_its_place(given: object, field: str) -> None:
    assert refused({"input": given}).field == field


def test_what_the_chat_side_refuses_has_this_endpoints_field_names() -> None:
    assert refused({"input": "x", "max_output_tokens": 0}).field == "max_output_tokens"
    found = conversation("rules", [{"role": "user", "content": "x"}])
    error = found.in_response_terms(
        RequestError(400, "t", "c", "messages[1].content is odd", field="messages[1].content")
    )
    assert (error.field, error.message) == ("input[0].content", "input[0].content is odd")
    assert found.in_response_terms(RequestError(400, "t", "c", "messages holds", field="messages")).field == "input"


STATEFUL = [
    ("store", True),
    ("previous_response_id", "resp_1"),
    ("background", True),
    ("conversation", "conv_1"),
    ("include", ["reasoning.encrypted_content"]),
    ("prompt", {"id": "p"}),
    ("truncation", "auto"),
    ("reasoning", {"effort": "high"}),
    ("max_tool_calls", 1),
    ("top_logprobs", 3),
    ("n", 2),
    ("logprobs", True),
    ("messages", []),
    ("max_tokens", 5),
]


@pytest.mark.parametrize(("field", "value"), STATEFUL)
def test_what_needs_state_or_is_not_served_is_refused_by_name(field: str, value: object) -> None:
    error = refused({"input": "x", field: value})
    assert (error.field, error.code) == (field, "unsupported_field")


@pytest.mark.parametrize(("field", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_a_value_that_asks_for_nothing_is_accepted(field: str, value: object) -> None:
    assert parse_response({"input": "x", field: value}).unknown == ()


def test_text_and_stream_options_and_metadata_are_checked() -> None:
    assert refused({"input": "x", "text": 5}).field == "text"
    assert refused({"input": "x", "text": {"format": "json"}}).field == "text.format"
    assert refused({"input": "x", "text": {"verbosity": "high"}}).field == "text.verbosity"
    assert refused({"input": "x", "stream_options": {"include_usage": True}}).field == "stream_options.include_usage"
    assert refused({"input": "x", "metadata": {"a": 1}}).field == "metadata"
    assert refused({"input": "x", "metadata": {"a": "x" * 513}}).field == "metadata"
    good = {"input": "x", "text": {"format": {"type": "text"}, "verbosity": "medium"}, "metadata": {"a": "b"}}
    assert (parse_response(good).echo or {})["metadata"] == {"a": "b"}


FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}


def test_flat_tools_and_choices_are_a_chats_nested_ones() -> None:
    ask = parse_response({"input": "x", "tools": [FUNCTION], "parallel_tool_calls": False})
    inner = {name: value for name, value in FUNCTION.items() if name != "type"}
    assert ask.rendering.tools == ({"type": "function", "function": inner},)
    assert ask.tool_use == ToolUse(("f",), False, "auto", ("f",), True)
    assert ask.echo is not None and ask.echo["tools"] == [FUNCTION] and ask.echo["parallel_tool_calls"] is False
    plain = {"type": "function", "name": "g"}
    for choice, mode in (
        ("required", "required"),
        (plain, "named"),
        ({"type": "allowed_tools", "mode": "required", "tools": [plain]}, "required"),
    ):
        ask = parse_response({"input": "x", "tools": [FUNCTION, plain], "tool_choice": choice})
        assert ask.tool_use is not None and ask.tool_use.mode == mode
        assert ask.tool_use.names == (("f", "g") if choice == "required" else ("g",))
        assert ask.echo is not None and ask.echo["tool_choice"] == choice
        assert ask.echo["tools"][1] == plain | {"description": None, "parameters": None, "strict": False}  # type: ignore[index]


def test_a_text_format_is_a_chats_response_format() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "integer"}, "strict": True}
    ask = parse_response({"input": "x", "text": {"format": form}})
    assert ask.structured == Structured("json_schema", '{"type":"integer"}', "response_format.json_schema.schema")
    assert ask.echo is not None and ask.echo["text"] == {"format": form}
    assert parse_response({"input": "x", "text": {"format": {"type": "json_object"}}}).structured is not None
    assert parse_response({"input": "x", "text": {"format": {"type": "text"}}}).structured is None


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [FUNCTION | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools[1].name"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.mode"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}, "x": 1}}}, "text.format.x"),
        ({"text": {"format": {"type": "json_object"}}, "ignore_eos": True}, "ignore_eos"),
    ],
)
def test_what_is_wrong_with_tools_and_formats_has_this_endpoints_field_names(
    more: dict[str, object], field: str
) -> None:
    error = refused({"input": "x"} | more)
    assert error.field == field
    assert "response_format" not in error.message and "].function" not in error.message
