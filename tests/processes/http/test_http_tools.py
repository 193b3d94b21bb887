"""Tool calls and reasoning as the official client gets them from a real router, streamed and not."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import openai
import pytest
import pytest_asyncio
from support.router import grpc_calls
from support.router.fake_leader import FakeLeader, Script, serving
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import byte_level, files, template, write
from tokenizers import Tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")
COMMON = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
SHAPES = {
    "hermes": ("qwen3_thinking", COMMON),
    "llama3": ("llama31_tools", ["<s>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"]),
    "mistral": ("mistral_v3_tools", ["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"]),
    "think": ("deepseek_r1", ["<s>", "</s>", "<|User|>", "<|Assistant|>", "<think>", "</think>"]),
}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in ("get_weather", "clock")
]
USER: Any = {"role": "user", "content": "How is it in Paris?"}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}
BAD: Any = {"type": "function", "function": {"name": "bad", "parameters": {"not": {}}}}
PARIS = '{"city": "Paris é日🌶", "days": [1, 2.5, null]}'


@dataclass(frozen=True)
class Model:
    tokenizer: Tokenizer
    leader: FakeLeader
    router: RunningRouter
    client: openai.AsyncOpenAI

    def says(self, text: str) -> None:
        self.leader.script = replace(self.leader.script, ids=tuple(self.tokenizer.encode(text).ids))

    def prompt(self) -> str:
        ids = memoryview(self.leader.submits[-1].prompt).cast("I").tolist()
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def models(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Model]]:
    async with AsyncExitStack() as stack:
        yield {kind: await started(stack, tmp_path_factory, kind) for kind in SHAPES}


async def started(stack: AsyncExitStack, factory: pytest.TempPathFactory, kind: str, *flags: str) -> Model:
    folder = factory.mktemp(kind)
    name, specials = SHAPES[kind]
    tokenizer = byte_level(specials=specials)
    made = files(tokenizer, template(name), bos_token="<s>", eos_token=specials[1])
    address = f"unix:{folder}/leader.sock"
    script = Script(tokenizer=write(folder / "model", made), served_name="m", ends=True)
    leader = await stack.enter_async_context(serving(script, address))
    router = await stack.enter_async_context(routing([address], *flags))
    client = openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=0)
    stack.push_async_callback(client.close)
    return Model(tokenizer, leader, router, client)


@dataclass
class Said:
    content: str | None
    reasoning: str | None
    calls: list[tuple[str, str]]
    ids: list[str]
    reason: str


async def whole(model: Model, **asked: Any) -> Said:
    answer = await model.client.chat.completions.create(
        **({"model": "m", "messages": [USER], "max_tokens": 500} | asked)
    )
    (choice,) = answer.choices
    calls = choice.message.tool_calls or []
    assert all(call.type == "function" for call in calls)
    extra = choice.message.model_extra or {}
    assert extra.get("reasoning") == extra.get("reasoning_content")
    made = [(call.function.name, call.function.arguments) for call in calls if call.type == "function"]
    return Said(choice.message.content, extra.get("reasoning"), made, [call.id for call in calls], choice.finish_reason)


async def streamed(model: Model, **asked: Any) -> Said:
    """Joined as clients join it; the shape of each delta is checked on the way."""
    said = Said(None, None, [], [], "")
    events = await model.router.events(
        "/v1/chat/completions", {"model": "m", "messages": [USER], "max_tokens": 500} | asked
    )
    assert events.pop() == "[DONE]"
    assert json.loads(events[0])["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    for event in map(json.loads, events[1:]):
        assert event["object"] == "chat.completion.chunk"
        (choice,) = event["choices"]
        assert not said.reason, "nothing follows the finish"
        said.reason = choice["finish_reason"] or ""
        hear(said, choice["delta"])
    return said


def hear(said: Said, delta: dict[str, Any]) -> None:
    if "content" in delta:
        assert set(delta) == {"content"} and delta["content"]
        said.content = (said.content or "") + delta["content"]
    if "reasoning" in delta:
        assert delta == {"reasoning": delta["reasoning"], "reasoning_content": delta["reasoning"]}
        said.reasoning = (said.reasoning or "") + delta["reasoning"]
    for call in delta.get("tool_calls", ()):
        if "id" in call:
            assert set(call) == {"index", "id", "type", "function"} and call["type"] == "function"
            assert call["index"] == len(said.calls) and call["function"]["arguments"] == ""
            said.calls.append((call["function"]["name"], ""))
            said.ids.append(call["id"])
        else:
            assert set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}
            name, arguments = said.calls[call["index"]]
            said.calls[call["index"]] = (name, arguments + call["function"]["arguments"])


async def both(model: Model, **asked: Any) -> Said:
    """The same, but for the ids, whole and streamed."""
    one, two = await whole(model, **asked), await streamed(model, **asked)
    assert replace(one, ids=[]) == replace(two, ids=[])
    assert len(set(one.ids + two.ids)) == 2 * len(one.ids)
    return one


ONE = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>',
    "llama3": '{"name": "get_weather", "parameters": %s}',
    "mistral": '[TOOL_CALLS] [{"name": "get_weather", "arguments": %s}]',
}
TWO = {
    "hermes": ONE["hermes"] + '\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
    "llama3": '<|python_tag|>{"name": "get_weather", "parameters": %s}; {"name": "clock", "parameters": {}}',
    "mistral": "[TOOL_CALLS]get_weather[ARGS]%s[TOOL_CALLS]clock{}",
}


@pytest.mark.parametrize("kind", ONE)
async def test_a_call_is_found_whole_and_streamed(models: dict[str, Model], kind: str) -> None:
    model = models[kind]
    model.says(ONE[kind] % PARIS)
    said = await both(model, tools=TOOLS)
    assert said == Said(None, None, [("get_weather", PARIS)], said.ids, "tool_calls")
    assert re.fullmatch(r"[A-Za-z0-9]{9}" if kind == "mistral" else r"call_[0-9a-f]{24}", said.ids[0])
    assert "get_weather" in model.prompt()


@pytest.mark.parametrize("kind", ONE)
async def test_a_call_that_has_to_be_made_is_bound_in_the_engine(models: dict[str, Model], kind: str) -> None:
    model = models[kind]
    model.says(ONE[kind] % PARIS)
    for choice, reason in (("required", "tool_calls"), (NAMED, "stop")):
        said = await both(model, tools=TOOLS, tool_choice=choice)
        assert said == Said(None, None, [("get_weather", PARIS)], said.ids, reason)
        assert "get_weather" in model.leader.submits[-1].grammar
    await both(model, tools=TOOLS)
    assert not model.leader.submits[-1].grammar


@pytest.mark.parametrize("kind", ONE)
async def test_arguments_come_in_pieces(models: dict[str, Model], kind: str) -> None:
    models[kind].says(ONE[kind] % PARIS)
    asked = {"model": "m", "messages": [USER], "tools": TOOLS}
    events = await models[kind].router.events("/v1/chat/completions", asked)
    assert sum('"arguments"' in event for event in events) > 5


@pytest.mark.parametrize("kind", TWO)
async def test_calls_at_once_have_their_own_index_and_id(models: dict[str, Model], kind: str) -> None:
    models[kind].says(TWO[kind] % PARIS)
    said = await both(models[kind], tools=TOOLS)
    assert said == Said(None, None, [("get_weather", PARIS), ("clock", "{}")], said.ids, "tool_calls")
    said = await both(models[kind], tools=TOOLS, parallel_tool_calls=False)
    assert said.calls == [("get_weather", PARIS)] and said.reason == "tool_calls"


async def test_text_before_a_call_is_content(models: dict[str, Model]) -> None:
    for kind, before in (("hermes", "Let me see.\n"), ("mistral", "Let me see."), ("llama3", "Let me see.\n")):
        models[kind].says(before + ONE[kind] % PARIS)
        said = await both(models[kind], tools=TOOLS)
        assert (said.content, said.calls, said.reason) == (before, [("get_weather", PARIS)], "tool_calls")


@pytest.mark.parametrize("kind", ONE)
async def test_a_broken_call_is_content_and_the_model_has_just_stopped(models: dict[str, Model], kind: str) -> None:
    text = ONE[kind] % "{'no': json}"
    models[kind].says(text)
    one = await whole(models[kind], tools=TOOLS)
    two = await streamed(models[kind], tools=TOOLS)
    shown = text.replace("[TOOL_CALLS]", "")  # a control token is never shown
    assert one == Said(shown, None, [], [], "stop")
    assert (two.content, two.reason) == (shown, "stop")
    assert all(name == "get_weather" and not valid(arguments) for name, arguments in two.calls), "what was shown"


def valid(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("kind", ONE)
async def test_a_call_cut_by_its_length_is_no_call(models: dict[str, Model], kind: str) -> None:
    model = models[kind]
    model.says(ONE[kind] % PARIS)
    cut = 2 * len(model.leader.script.ids) // 3
    one, two = await whole(model, tools=TOOLS, max_tokens=cut), await streamed(model, tools=TOOLS, max_tokens=cut)
    assert (one.calls, one.reason, two.reason) == ([], "length", "length")
    assert one.content == two.content == model.tokenizer.decode(list(model.leader.script.ids[:cut]))


@pytest.mark.parametrize("kind", ONE)
async def test_without_tools_nothing_is_looked_for(models: dict[str, Model], kind: str) -> None:
    models[kind].says(ONE[kind] % PARIS)
    shown = (ONE[kind] % PARIS).replace("[TOOL_CALLS]", "")
    for asked in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        assert await both(models[kind], **asked) == Said(shown, None, [], [], "stop")
        assert "get_weather" not in models[kind].prompt()


async def test_the_clients_own_stream_helper_puts_the_calls_together(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says("<think>\nParis!\n</think>\n\nI look.\n" + TWO["hermes"] % PARIS)
    async with model.client.chat.completions.stream(model="m", messages=[USER], tools=TOOLS) as stream:
        names = [event.name async for event in stream if event.type == "tool_calls.function.arguments.done"]
        message = (await stream.get_final_completion()).choices[0].message
    assert names == ["get_weather", "clock"]
    assert message.content == "I look.\n" and message.tool_calls is not None
    assert [call.function.arguments for call in message.tool_calls] == [PARIS, "{}"]


@pytest.mark.parametrize("kind", ONE)
async def test_a_call_and_its_result_go_back_as_they_came(models: dict[str, Model], kind: str) -> None:
    model = models[kind]
    model.says(ONE[kind] % PARIS)
    asked: Any = {"model": "m", "tools": TOOLS, "max_tokens": 500}
    message = (await model.client.chat.completions.create(messages=[USER], **asked)).choices[0].message
    assert message.tool_calls is not None
    result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "windy"}
    model.says("It is windy.")
    answer = await model.client.chat.completions.create(messages=[USER, message, result], **asked)  # type: ignore[list-item]
    assert answer.choices[0].message.content == "It is windy."
    assert "windy" in model.prompt() and "Paris é日🌶" in model.prompt()


async def test_reasoning_is_separated_from_content(models: dict[str, Model]) -> None:
    hermes, think = models["hermes"], models["think"]
    hermes.says("<think>\n2+2 🌶\n</think>\n\nIt is 4.")
    assert await both(hermes) == Said("It is 4.", "2+2 🌶", [], [], "stop")
    think.says("2+2\n</think>\n\nIt is 4.")
    assert await both(think) == Said("It is 4.", "2+2", [], [], "stop"), "its template opens the reasoning"
    think.says("2+2 and on")
    assert await both(think) == Said(None, "2+2 and on", [], [], "stop")
    hermes.says("It is 4.")
    assert await both(hermes) == Said("It is 4.", None, [], [], "stop")
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    hermes.says("It is 4.")
    events = await hermes.router.post("/v1/chat/completions", {"model": "m", "messages": [USER]} | off)
    assert events[1]["choices"][0]["message"]["content"] == "It is 4."
    assert hermes.prompt().endswith("<think>\n\n</think>\n\n")


async def test_a_continued_message_continues_its_reasoning(models: dict[str, Model]) -> None:
    model = models["think"]
    model.says(" 2\n</think>4")
    messages: Any = [USER, {"role": "assistant", "content": "2 +"}]
    body = {"model": "m", "messages": messages, "continue_final_message": True}
    status, answer = await model.router.post("/v1/chat/completions", body)
    assert status == 200 and model.prompt().endswith("<|Assistant|>2 +")
    assert answer["choices"][0]["message"]["content"] == " 2\n4", "a control token out of place is not shown"


async def test_a_stop_string_ends_a_call_before_it_is_one(models: dict[str, Model]) -> None:
    models["hermes"].says("Well. " + ONE["hermes"] % PARIS)
    said = await both(models["hermes"], tools=TOOLS, stop="arguments")
    assert (said.content, said.calls, said.reason) == ('Well. <tool_call>\n{"name": "get_weather", "', [], "stop")


async def test_what_cannot_be_done_is_refused_by_name(models: dict[str, Model]) -> None:
    good = {"model": "m", "messages": [USER]}
    for model, body, field in (
        ("hermes", {"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        ("hermes", {"tools": [TOOLS[0], BAD], "tool_choice": "required"}, "tools[1].function.parameters"),
        ("hermes", {"documents": [{"text": "x"}]}, "documents"),
        ("think", {"tools": TOOLS}, "tools"),
        ("think", {"chat_template": "x"}, "chat_template"),
        ("think", {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        (
            "llama3",
            {"messages": [USER, {"role": "assistant", "tool_calls": [{}]}]},
            "messages[1].tool_calls[0].function",
        ),
    ):
        for stream in (False, True):
            status, answer = await models[model].router.post("/v1/chat/completions", good | body | {"stream": stream})
            assert (status, answer["error"]["param"]) == (400, field)


async def test_several_answers_are_parsed_each_by_itself(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says("<think>hm</think>" + ONE["hermes"] % PARIS)
    answer = await model.client.chat.completions.create(model="m", messages=[USER], tools=TOOLS, n=2)
    made = [choice.message.tool_calls for choice in answer.choices]
    assert [call.function.arguments for calls in made if calls for call in calls] == [PARIS] * 2
    body = {"model": "m", "messages": [USER], "n": 2, "tools": TOOLS}
    events = [json.loads(event) for event in (await model.router.events("/v1/chat/completions", body))[:-1]]
    for index in range(2):
        said = Said(None, None, [], [], "")
        for choice in (choice for event in events for choice in event["choices"] if choice["index"] == index):
            if "role" not in choice["delta"]:
                hear(said, choice["delta"])
        assert (said.reasoning, said.calls) == ("hm", [("get_weather", PARIS)])


async def test_flags_choose_the_parsers(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with AsyncExitStack() as stack:
        flags = ("--tool-parser", "none", "--reasoning-parser", "none")
        model = await started(stack, tmp_path_factory, "hermes", *flags)
        model.says("<think>a</think>b")
        assert (await both(model)).content == "<think>a</think>b"
        body = {"model": "m", "messages": [USER], "tools": TOOLS}
        status, answer = await model.router.post("/v1/chat/completions", body)
        assert (status, answer["error"]["param"]) == (400, "tools") and "--tool-parser" in answer["error"]["message"]
        other = await started(stack, tmp_path_factory, "hermes", "--tool-parser=mistral")
        other.says(ONE["mistral"] % PARIS)
        assert (await both(other, tools=TOOLS)).calls == [("get_weather", PARIS)]


@pytest.mark.parametrize("kind", ["hermes", "think"])
async def test_a_response_leaves_reasoning_out(models: dict[str, Model], kind: str) -> None:
    model = models[kind]
    opened = "" if kind == "think" else "<think>"  # there the template opens it
    model.says(f"{opened}Let me see: 2 and 2.\n</think>\n\nIt is 4.")
    response = await model.client.responses.create(model="m", input="2 + 2?")
    assert (response.output_text, response.status, len(response.output)) == ("It is 4.", "completed", 1)
    stream = await model.client.responses.create(model="m", input="2 + 2?", stream=True)
    events = [event async for event in stream]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "It is 4."
    assert events[-1].type == "response.completed" and events[-1].response.output_text == "It is 4."
    assert [event.sequence_number for event in events] == list(range(len(events)))


def flat(tool: dict[str, Any]) -> Any:
    return {"type": "function", **tool["function"]}


FLAT: Any = [flat(tool) for tool in TOOLS]


@pytest.mark.parametrize("kind", TWO)
async def test_calls_are_items_of_a_response_whole_and_streamed(models: dict[str, Model], kind: str) -> None:
    model = models[kind]
    model.says(("" if kind == "llama3" else "I look.\n") + TWO[kind] % PARIS)
    create = model.client.responses.create
    whole = await create(model="m", input="Paris?", tools=FLAT)
    calls = [item for item in whole.output if item.type == "function_call"]
    assert [(call.name, call.arguments) for call in calls] == [("get_weather", PARIS), ("clock", "{}")]
    assert len({call.call_id for call in calls} | {call.id for call in calls}) == 4
    assert whole.status == "completed" and [tool.type for tool in whole.tools] == ["function"] * 2
    events = [event async for event in await create(model="m", input="Paris?", tools=FLAT, stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1].response
    assert events[-1].type == "response.completed" and last.output_text == whole.output_text
    assert [item.type for item in last.output] == [item.type for item in whole.output]
    for index, item in enumerate(last.output):
        mine = [event for event in events if getattr(event, "output_index", None) == index]
        kinds = [event.type.removeprefix("response.") for event in mine]
        assert kinds[0] == "output_item.added" and kinds[-1] == "output_item.done" and mine[-1].item == item
        if item.type == "function_call":
            assert mine[0].item.arguments == "" and mine[0].item.call_id == item.call_id
            assert set(kinds[1:-2]) == {"function_call_arguments.delta"}
            assert "".join(event.delta for event in mine[1:-2]) == mine[-2].arguments == item.arguments
            assert mine[-2].type == "response.function_call_arguments.done" and mine[-2].item_id == item.id
    asked = {"model": "m", "input": "Paris?", "tools": FLAT, "tool_choice": {"type": "function", "name": "get_weather"}}
    named = await create(**asked, parallel_tool_calls=False)
    assert model.leader.submits[-1].grammar and not named.parallel_tool_calls
    assert named.output[-1].type == "function_call" and named.tool_choice.name == "get_weather"  # type: ignore[union-attr]


async def test_the_clients_own_helper_follows_the_calls_of_a_response(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says("<think>Hm.</think>" + ONE["hermes"] % PARIS)
    strict = {"type": "object", "properties": {}, "additionalProperties": False}
    tools: Any = [tool | {"strict": True, "parameters": strict} for tool in FLAT]
    async with model.client.responses.stream(model="m", input="Paris?", tools=tools) as stream:
        pieces = [event async for event in stream if event.type == "response.function_call_arguments.delta"]
        final = await stream.get_final_response()
    assert pieces[-1].snapshot == PARIS
    (call,) = final.output
    assert call.type == "function_call" and call.arguments == PARIS


async def test_a_call_that_turned_out_to_be_none_is_no_item_of_the_response(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says(ONE["hermes"] % '{"a": no}')
    whole = await model.client.responses.create(model="m", input="Paris?", tools=FLAT)
    stream = await model.client.responses.create(model="m", input="Paris?", tools=FLAT, stream=True)
    events = [event async for event in stream]
    assert [item.type for item in whole.output] == [item.type for item in events[-1].response.output] == ["message"]
    assert events[-1].response.output_text == whole.output_text == ONE["hermes"] % '{"a": no}'
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [(item.type, item.status) for item in done] == [("function_call", "incomplete"), ("message", "completed")]


async def test_calls_and_results_of_a_response_go_back_as_they_came(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says(ONE["hermes"] % PARIS)
    first = await model.client.responses.create(model="m", input=[USER], tools=FLAT)
    call = first.output[0]
    assert call.type == "function_call"
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "windy"}
    model.says("It is windy.")
    again = await model.client.responses.create(model="m", input=[USER, *first.output, output], tools=FLAT)  # type: ignore[list-item]
    assert again.output_text == "It is windy."
    assert "windy" in model.prompt() and "Paris é日🌶" in model.prompt()


async def test_calls_in_the_input_of_a_response_are_rendered_as_a_chats(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says("Fine.")
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": PARIS}
    output = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
    await model.client.responses.create(model="m", input=[USER, call, output])
    prompt = model.prompt()
    assert "get_weather" in prompt and "Paris" in prompt and "sunny" in prompt


async def test_tokenize_renders_what_a_chat_renders(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says("Fine.")
    for more in ({"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}, {"chat_template_kwargs": {"a": 1}}):
        body = {"model": "m", "messages": [USER], **more}
        await model.router.post("/v1/chat/completions", body)
        status, answer = await model.router.post("/tokenize", body)
        assert (status, answer["tokens"]) == (200, memoryview(model.leader.submits[-1].prompt).cast("I").tolist())


def tokens_of(choices: list[dict[str, Any]]) -> list[str]:
    return [one["token"] for choice in choices if choice["logprobs"] for one in choice["logprobs"]["content"]]


@pytest.mark.parametrize("kind", [*ONE, "think"])
async def test_all_tokens_have_details_beside_calls_and_reasoning(models: dict[str, Model], kind: str) -> None:
    """Whole and streamed, and the message is what it is without."""
    model = models[kind]
    model.says("Hm.\n</think>\n\nIt is 4 🌶." if kind == "think" else "I look.\n" + ONE[kind] % PARIS)
    asked: Any = {"model": "m", "messages": [USER], "max_tokens": 500, "tools": [] if kind == "think" else TOOLS}
    details: Any = {"logprobs": True, "top_logprobs": 1, "return_token_ids": True}
    plain = (await model.router.post("/v1/chat/completions", asked))[1]["choices"][0]
    status, answer = await model.router.post("/v1/chat/completions", asked | details)
    assert status == 200, answer
    (choice,) = answer["choices"]
    assert without_ids(choice["message"]) == without_ids(plain["message"])
    assert choice["finish_reason"] == plain["finish_reason"]
    ids = list(model.leader.script.ids)
    assert choice["token_ids"] == ids and len(tokens_of([choice])) == len(ids)
    usage: Any = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    events = await model.router.events("/v1/chat/completions", asked | details | usage)
    assert events.pop() == "[DONE]"
    heard, streamed_ids, said = list[dict[str, Any]](), list[int](), Said(None, None, [], [], "")
    for event in map(json.loads, events):
        assert event["usage"]["completion_tokens"] >= len(streamed_ids) if streamed_ids else True
        for one in event["choices"]:
            heard.append(one)
            streamed_ids += one.get("token_ids", [])
            if "role" not in one["delta"]:
                hear(said, one["delta"])
    assert tokens_of(heard) == tokens_of([choice]) and streamed_ids == ids
    assert (said.content, said.reasoning) == (plain["message"]["content"], plain["message"].get("reasoning"))
    assert said.calls == [
        (call["function"]["name"], call["function"]["arguments"]) for call in plain["message"].get("tool_calls", [])
    ]
    assert [one["finish_reason"] for one in heard if one["finish_reason"]] == [plain["finish_reason"]]


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = [call | {"id": ""} for call in message.get("tool_calls", [])]
    return message | {"tool_calls": calls}


async def test_a_failure_beside_details_releases_what_the_parser_held(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says('Well. <tool_call>\n{"name": "clock"}\n</tool_call>')
    body = {"model": "m", "messages": [USER], "tools": TOOLS, "logprobs": True, "max_tokens": 500, "stop": "{}"}
    came = len(model.tokenizer.encode("Well. <tool_call>\n{").ids)
    model.leader.fail_at = came
    try:
        events = [json.loads(event) for event in await model.router.events("/v1/chat/completions", body)]
    finally:
        model.leader.fail_at = None
    shown = [choice for event in events[:-1] for choice in event["choices"]]
    text = model.tokenizer.decode(list(model.leader.script.ids[:came]))
    assert text.startswith("Well. <tool_call>") and "error" in events[-1]
    assert all(not one["finish_reason"] for one in shown)
    assert "".join(one["delta"].get("content") or "" for one in shown) == text
    assert len(tokens_of(shown)) == came


async def test_over_grpc_the_text_is_as_it_came(models: dict[str, Model]) -> None:
    model = models["hermes"]
    model.says("<think>Hm.</think>\n\nIt is 4.")
    body = {"messages": [{"role": "user", "content": "2 + 2?"}]}
    async with grpc_calls.calling(model.router.grpc) as stub:
        whole = await stub.Generate(grpc_calls.message_of(body))
        pieces = grpc_calls.joined(await grpc_calls.streamed(stub, grpc_calls.message_of(body)))
    assert whole.outputs[0].text == pieces.outputs[0].text == "<think>Hm.</think>\n\nIt is 4."
