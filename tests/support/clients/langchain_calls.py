"""What LangChain's ChatOpenAI makes of two servers, as JSON: `python langchain_calls.py MODEL_URL TOOLS_URL`.

Runs in the environment of `support/router/client_packages.py`. The first has an engine, the second is scripted and
calls tools.
"""

import asyncio
import json
import sys
from typing import Any, Literal

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

ASKED = [SystemMessage("Be short."), HumanMessage("Köln?")]


class City(BaseModel, extra="forbid"):
    """A city. Without more properties: random weights would add them for ever."""

    name: str = Field(max_length=12)
    people: int = Field(ge=0, le=999)
    river: Literal["Rhine", "Danube"]


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def described(message: Any) -> dict[str, Any]:
    """Of an answer, or of the pieces of one, joined."""
    return {
        "content": message.content,
        "reason": message.response_metadata.get("finish_reason"),
        "usage": dict(message.usage_metadata or {}),
        "calls": [{key: call[key] for key in ("name", "args")} for call in message.tool_calls],
        "invalid": len(message.invalid_tool_calls),
    }


def joined(pieces: list[Any]) -> dict[str, Any]:
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    return described(whole) | {"pieces": len(pieces)}


async def astreamed(model: Any) -> dict[str, Any]:
    return joined([piece async for piece in model.astream(ASKED)])


def with_model(url: str) -> dict[str, Any]:
    model = ChatOpenAI(
        model="local", base_url=url, api_key="none", temperature=0, max_tokens=24, max_retries=0, stream_usage=True
    )
    hot = model.model_copy(update={"temperature": 1.3, "max_tokens": 400, "seed": 5})
    return {
        "invoke": described(model.invoke(ASKED)),
        "stream": joined(list(model.stream(ASKED))),
        "astream": asyncio.run(astreamed(model)),
        "batch": [described(one) for one in model.batch([ASKED, ASKED])],
        "structured": hot.with_structured_output(City, method="json_schema").invoke(ASKED).model_dump(),
        "structured_dict": hot.with_structured_output(City.model_json_schema(), method="json_schema").invoke(ASKED),
    }


def with_tools(url: str) -> dict[str, Any]:
    model = ChatOpenAI(model="m", base_url=url, api_key="none", max_tokens=200, max_retries=0)
    bound = model.bind_tools([get_weather], tool_choice="auto")
    first: AIMessage = bound.invoke(ASKED)
    results = [ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]) for call in first.tool_calls]
    return {
        "invoke": described(first),
        "stream": joined(list(bound.stream(ASKED))),
        "after": described(model.invoke([*ASKED, first, *results])),
    }


if __name__ == "__main__":
    print(json.dumps({"model": with_model(sys.argv[1]), "tools": with_tools(sys.argv[2])}))
