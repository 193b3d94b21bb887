"""/v1/responses as the official client uses it, whole and as typed events."""

import asyncio
import json
from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio
from support.patience import PATIENCE_S
from support.router.fronts import Front, front

pytestmark = pytest.mark.asyncio(loop_scope="module")
STORY = "Once upon a time there was a naïve café 日本語 🌶 and the end."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    async with front(tmp_path_factory.mktemp("responses")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Front) -> AsyncIterator[openai.AsyncOpenAI]:
    served.leader.fail_at = None
    served.leader.holding = False
    async with openai.AsyncOpenAI(base_url=f"{served.router.url}/v1", api_key="none", max_retries=0) as made:
        yield made


async def test_the_official_client_gets_a_response(served: Front, client: openai.AsyncOpenAI) -> None:
    tokens = served.say(STORY)
    response = await client.responses.create(
        model="m",
        input="Tell me",
        instructions="Be brief",
        max_output_tokens=tokens,
        temperature=0.5,
        top_p=0.9,
        store=False,
        metadata={"a": "b"},
        user="me",
    )
    assert response.output_text == STORY
    assert (response.status, response.object, response.model) == ("incomplete", "response", "m")
    assert response.incomplete_details is not None and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None and response.usage.output_tokens == tokens
    assert response.usage.total_tokens == response.usage.input_tokens + tokens
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.5, 0.9, tokens)
    assert (response.instructions, response.metadata, response.user) == ("Be brief", {"a": "b"}, "me")
    assert response.id.startswith("resp_") and response.output[0].id.startswith("msg_")
    assert (response.store, response.previous_response_id, response.tools) == (False, None, [])


async def test_a_stop_makes_it_completed(served: Front) -> None:
    served.say("ABCDEF")
    body = {"model": "m", "input": "x", "max_output_tokens": 500, "stop": "DEF"}
    status, answer = await served.router.post("/v1/responses", body)
    assert (status, answer["status"], answer["incomplete_details"]) == (200, "completed", None)
    assert answer["output"][0]["content"][0]["text"] == "ABC"


async def test_the_events_build_up_what_the_last_one_holds(served: Front, client: openai.AsyncOpenAI) -> None:
    tokens = served.say(STORY)
    asked = {"model": "m", "input": [{"role": "user", "content": "x"}], "max_output_tokens": tokens}
    whole = await client.responses.create(**asked)
    events = [event async for event in await client.responses.create(**asked, stream=True)]
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert deltas > 5 and [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1].response
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == STORY
    assert events[-4].text == last.output_text == whole.output_text == STORY
    assert events[-2].item == last.output[0] and events[-3].part == last.output[0].content[0]
    assert last.usage == whole.usage and events[0].response.status == "in_progress"
    ids = {event.item_id for event in events if hasattr(event, "item_id")} | {events[2].item.id, last.output[0].id}
    assert len(ids) == 1 and events[0].response.id == last.id


async def test_the_clients_own_stream_helper_follows_it(served: Front, client: openai.AsyncOpenAI) -> None:
    served.say("ABC")
    async with client.responses.stream(model="m", input="x", extra_body={"stop": "C"}) as stream:
        seen = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert "response.output_text.delta" in seen and final.output_text == "AB"


async def test_each_events_line_names_its_type_and_no_done_follows(served: Front) -> None:
    served.say("ABC")
    body = {"model": "m", "input": "x", "max_output_tokens": 3, "stream": True}
    async with served.router.session.post(f"{served.router.url}/v1/responses", json=body) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        blocks = (await answer.text()).strip().split("\n\n")
    for block in blocks:
        event, data = block.split("\n")
        assert json.loads(data.removeprefix("data: "))["type"] == event.removeprefix("event: ")


async def test_a_conversation_goes_on_from_what_was_answered(served: Front, client: openai.AsyncOpenAI) -> None:
    served.say("ABC")
    first = await client.responses.create(model="m", input="x", max_output_tokens=3)
    history = [{"role": "user", "content": "x"}, *first.output, {"role": "user", "content": "again"}]
    sent = [item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in history]
    again = await client.responses.create(model="m", input=sent, max_output_tokens=3)
    assert again.usage is not None and first.usage is not None
    assert again.usage.input_tokens > first.usage.input_tokens


async def test_what_is_refused_is_named_streaming_and_not(served: Front) -> None:
    refused = [
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"include": ["x"]}, "include"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"not": {}}}}}, "text.format.schema"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 5000}, "max_output_tokens"),
        ({"input": []}, "input"),
        ({"input": "word " * 4000}, "input"),
        ({"temperature": 3}, "temperature"),
    ]
    for fields, name in refused:
        for stream in (False, True):
            status, answer = await served.router.post("/v1/responses", {"input": "x", "stream": stream} | fields)
            assert (status, answer["error"]["param"]) == (400, name), answer


async def test_a_failure_in_the_middle_is_one_failed_event_and_the_end(
    served: Front, client: openai.AsyncOpenAI
) -> None:
    served.say("ABCDEF")
    served.leader.fail_at = 3
    asked = {"model": "m", "input": "x", "max_output_tokens": 50}
    async with asyncio.timeout(PATIENCE_S):
        events = [event async for event in await client.responses.create(**asked, stream=True)]
    assert [event.type for event in events].count("response.failed") == 1
    assert events[-1].type == "response.failed" and events[-1].response.status == "failed"
    assert events[-1].response.error is not None and "engine" in events[-1].response.error.message
    with pytest.raises(openai.InternalServerError):
        await client.responses.create(**asked)
    served.leader.fail_at = 0
    with pytest.raises(openai.InternalServerError):
        await client.responses.create(**asked, stream=True)
