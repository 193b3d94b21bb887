"""A model of random weights, bound to calls: the official client gets calls, in every format, from a real engine."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import grpc
import openai
import pydantic
import pytest
import pytest_asyncio
from support.models.checkpoints import EOS
from support.router import grpc_calls
from support.router.routers import RunningRouter, routing
from support.router.tool_models import IDS, tool_checkpoint
from support.worker.worker import WorkerProcess

from octavo.proto.v1 import octavo_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = ("hermes", "llama3", "mistral")
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "How it is.", "parameters": CITY}},
    {"type": "function", "function": {"name": "clock"}},
]
STRICT: Any = [{"type": "function", "function": tool["function"] | {"strict": True}} for tool in TOOLS]
USER: Any = {"role": "user", "content": "How is it in Paris?"}
HOT: Any = {"model": "m", "messages": [USER], "temperature": 1.3, "max_tokens": 1200}
NAMED: Any = {"type": "function", "function": {"name": "weather"}}
# Wildly ambiguous: llguidance's chart is full after some thirty letters, and there have to be sixty.
RULES = "\n".join(f"r{n}: r{(n + 1) % 30} r{(n + 2) % 30} | LETTER" for n in range(30))
BREAKING = f"start: {'r0 ' * 60}\n{RULES}\nLETTER: /[a-x]/"


@dataclass(frozen=True)
class Served:
    router: RunningRouter
    client: openai.AsyncOpenAI


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Served]]:
    """One worker, and a router for each format, and for a model that reasons."""
    worker = WorkerProcess(tool_checkpoint(tmp_path_factory.mktemp("model") / "random"), "--served-name", "m").start()
    try:
        async with AsyncExitStack() as stack:
            group = [worker.addresses["serve"]]
            flags = {kind: f"--tool-parser={kind}" for kind in KINDS} | {"thinks": "--reasoning-parser=think"}
            starting = [stack.enter_async_context(routing(group, flag)) for flag in flags.values()]
            made = {}
            for kind, router in zip(flags, await asyncio.gather(*starting), strict=True):
                client = openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=0)
                made[kind] = Served(router, await stack.enter_async_context(client))
            yield made
    finally:
        worker.close()


def fits(name: str, arguments: str) -> bool:
    given = json.loads(arguments)
    if name == "clock":
        return bool(given == {})
    return name == "weather" and set(given) == {"city", "days"} and len(given["city"]) <= 8 and 1 <= given["days"] <= 9


@pytest.mark.parametrize("kind", KINDS)
async def test_a_required_call_is_made_whatever_the_model_would_say(served: dict[str, Served], kind: str) -> None:
    create = served[kind].client.chat.completions.create
    ask: Any = HOT | {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    answers = await asyncio.gather(*(create(**ask, seed=seed) for seed in range(6)))
    for answer in answers:
        (choice,) = answer.choices
        assert choice.message.content is None and choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls or []
        assert call.type == "function" and fits(call.function.name, call.function.arguments)
    assert len({answer.choices[0].message.tool_calls[0].function.arguments for answer in answers}) > 1  # type: ignore[index, union-attr]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_pieces_of_a_bound_call_are_the_call(served: dict[str, Served], kind: str) -> None:
    create = served[kind].client.chat.completions.create
    ask: Any = HOT | {"tools": TOOLS, "tool_choice": NAMED, "parallel_tool_calls": False, "seed": 7}
    whole = (await create(**ask)).choices[0]
    assert whole.finish_reason == "stop", "the client knows of a call that it named"
    (call,) = whole.message.tool_calls or []
    assert call.type == "function" and call.function.name == "weather"
    name, pieces, reasons = "", [], []
    async for chunk in await create(**ask, stream=True):
        (choice,) = chunk.choices
        assert not choice.delta.content
        for piece in choice.delta.tool_calls or []:
            assert piece.index == 0 and piece.function is not None
            name += piece.function.name or ""
            pieces.append(piece.function.arguments or "")
        reasons += [choice.finish_reason] if choice.finish_reason else []
    assert (name, "".join(pieces), reasons) == ("weather", call.function.arguments, ["stop"])
    assert len(pieces) > 5 and fits(name, "".join(pieces))


@pytest.mark.parametrize("kind", KINDS)
async def test_several_calls_are_calls_each(served: dict[str, Served], kind: str) -> None:
    create = served[kind].client.chat.completions.create
    ask: Any = HOT | {
        "tools": TOOLS,
        "tool_choice": "required",
        "logit_bias": {str(EOS): {"hermes": -2, "llama3": 2, "mistral": 2}[kind]},
    }
    counts = []
    for answer in await asyncio.gather(*(create(**ask, seed=seed) for seed in range(8))):
        (choice,) = answer.choices
        calls = choice.message.tool_calls or []
        assert all(call.type == "function" and fits(call.function.name, call.function.arguments) for call in calls)
        assert choice.finish_reason == "length" or (calls and choice.finish_reason == "tool_calls")
        counts.append(len(calls))
    assert max(counts) > 1, counts


@pytest.mark.parametrize("kind", ["hermes", "mistral"])
async def test_a_strict_function_is_free_to_be_left_and_bound_when_called(served: dict[str, Served], kind: str) -> None:
    create = served[kind].client.chat.completions.create
    ask: Any = HOT | {"tools": STRICT, "parallel_tool_calls": False}
    text = (await create(**ask, seed=1, extra_body={"stop": "e"})).choices[0]
    assert text.finish_reason == "stop" and text.message.tool_calls is None and text.message.content
    begin = str(IDS["[TOOL_CALLS]" if kind == "mistral" else "<tool_call>"])
    for answer in await asyncio.gather(*(create(**ask, seed=seed, logit_bias={begin: 100}) for seed in range(4))):
        (choice,) = answer.choices
        (call,) = choice.message.tool_calls or []
        assert choice.finish_reason == "tool_calls"
        assert call.type == "function" and fits(call.function.name, call.function.arguments)


class City(pydantic.BaseModel):
    name: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


@pytest.mark.parametrize("kind", ["hermes", "mistral"])
async def test_a_response_is_parsed_into_the_clients_own_type_or_is_a_call(
    served: dict[str, Served], kind: str
) -> None:
    parse = served[kind].client.responses.parse
    ask: Any = {"model": "m", "input": [USER], "temperature": 1.3, "max_output_tokens": 1200, "text_format": City}
    alone = await asyncio.gather(*(parse(**ask, extra_body={"seed": seed}) for seed in range(3)))
    assert all(isinstance(one.output_parsed, City) for one in alone)
    tools = [openai.pydantic_function_tool(City, name="city")["function"]]
    flat: Any = [{"type": "function", **tool} for tool in tools]
    begin = str(IDS["[TOOL_CALLS]" if kind == "mistral" else "<tool_call>"])
    for bias in (-100, 100):
        extra = {"seed": 1, "logit_bias": {begin: bias}}
        one = await parse(**ask, tools=flat, parallel_tool_calls=False, extra_body=extra)
        if bias < 0:
            assert isinstance(one.output_parsed, City)
        else:
            (call,) = one.output
            assert call.type == "function_call" and City.model_validate(call.parsed_arguments)
            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Fine."}
            again = await served[kind].client.responses.create(
                model="m", input=[USER, *alone[0].output, *one.output, result], tools=flat, max_output_tokens=3
            )
            assert again.usage is not None and again.usage.output_tokens == 3


async def test_an_answer_in_a_form_and_a_call_that_nothing_marks_are_distinguished(served: dict[str, Served]) -> None:
    names = {"type": "object", "properties": {"cities": {"type": "array", "maxItems": 2}}, "required": ["cities"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": names | {"additionalProperties": False}}}
    create = served["llama3"].client.chat.completions.create
    ask: Any = HOT | {"tools": STRICT, "response_format": form, "parallel_tool_calls": False}
    kinds = set()
    for answer in await asyncio.gather(*(create(**ask, seed=seed) for seed in range(10))):
        (choice,) = answer.choices
        if choice.finish_reason == "length":
            continue
        kinds.add(choice.finish_reason)
        if choice.finish_reason == "tool_calls":
            (call,) = choice.message.tool_calls or []
            assert call.type == "function" and fits(call.function.name, call.function.arguments)
            assert not choice.message.content
        else:
            assert choice.message.tool_calls is None and set(json.loads(choice.message.content or "")) == {"cities"}
    assert kinds == {"tool_calls", "stop"}


async def test_the_clients_own_strict_tools_are_parsed_into_its_types(served: dict[str, Served]) -> None:
    tool = openai.pydantic_function_tool(City, name="city")
    assert tool["function"]["strict"]
    for kind in KINDS:
        parse = served[kind].client.chat.completions.parse
        choice: Any = {"type": "function", "function": {"name": "city"}}
        answer = await parse(**HOT, seed=3, tools=[tool], tool_choice=choice, logprobs=True)
        (call,) = answer.choices[0].message.tool_calls or []
        assert isinstance(call.function.parsed_arguments, City)
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None and answer.usage is not None
        assert len(logprobs.content or []) == answer.usage.completion_tokens


async def test_a_model_that_reasons_is_bound_when_it_has_done_so(served: dict[str, Served]) -> None:
    parse = served["thinks"].client.chat.completions.parse
    begun: Any = {"role": "assistant", "content": "<think>Hm"}
    bias = {str(IDS["</think>"]): 6}  # random weights would hardly end it
    ask: Any = HOT | {"response_format": City, "logit_bias": bias}
    more: Any = {"add_generation_prompt": False, "continue_final_message": True}
    answers = await asyncio.gather(
        *(parse(**ask | {"messages": [USER, begun]}, seed=seed, extra_body=more) for seed in range(4))
    )
    for answer in answers:
        (choice,) = answer.choices
        assert isinstance(choice.message.parsed, City) and choice.finish_reason == "stop"
        assert City.model_validate_json(choice.message.content or "")
    thoughts = {getattr(answer.choices[0].message, "reasoning_content", None) for answer in answers}
    assert len(thoughts - {None, ""}) > 1, "which is free"
    over: Any = {"role": "assistant", "content": "<think>Hm</think>"}
    kept = (await parse(**ask | {"messages": [USER, over]}, seed=1, extra_body=more)).choices[0].message
    assert isinstance(kept.parsed, City) and not getattr(kept, "reasoning_content", None)
    text = ""
    create = served["thinks"].client.chat.completions.create
    form: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": City.model_json_schema()}}
    body: Any = HOT | {"messages": [USER, begun], "logit_bias": bias, "response_format": form, "seed": 0}
    async for chunk in await create(**body, stream=True, extra_body=more):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == answers[0].choices[0].message.content


async def test_a_grammar_that_breaks_in_the_middle_fails_the_request(served: dict[str, Served]) -> None:
    router = served["hermes"].router
    body = {"model": "m", "prompt": "a", "guided_grammar": BREAKING, "max_tokens": 200, "logit_bias": {"120": 100}}
    lengths = []
    for more in ({}, {"stop": "xy"}, {"stop": "xy", "logprobs": 1}):
        status, answer = await router.post("/v1/completions", body | more)
        assert (status, answer["error"]["code"]) == (500, "engine_failed")
        events = [json.loads(event) for event in await router.events("/v1/completions", body | more)]
        shown = [choice for event in events[:-1] for choice in event["choices"]]
        assert events[-1]["error"]["code"] == "engine_failed" and all(not one["finish_reason"] for one in shown)
        text = "".join(one["text"] for one in shown)
        assert len(text) > 16 and set(text) == {"x"}
        lengths.append(len(text))
        if "logprobs" in more:
            tokens = [token for one in shown if one["logprobs"] for token in one["logprobs"]["tokens"]]
            assert tokens == ["x"] * len(text)
    assert len(set(lengths)) == 1, "what a stop string held back stands, as all before it"
    assert (await router.post("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 3}))[0] == 200


async def test_a_grammar_that_breaks_fails_a_call_over_grpc(served: dict[str, Served]) -> None:
    request = grpc_calls.message_of({"prompt": "a", "max_tokens": 200})
    request.sampling.guided_grammar = BREAKING
    async with grpc_calls.calling(served["hermes"].router.grpc) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(request)
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        pieces: list[octavo_pb2.GenerateChunk] = []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for chunk in stub.GenerateStream(request):
                pieces.append(chunk)
        assert caught.value.code() == grpc.StatusCode.INTERNAL
    outputs = [output for chunk in pieces for output in chunk.outputs]
    assert outputs and all(not output.finish_reason for output in outputs)
