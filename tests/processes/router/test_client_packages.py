"""Other people's clients, as they are published, against real servers: OpenAI's, LangChain, LiteLLM's proxy."""

import asyncio
import json
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel, Field
from support.cluster.bed import wait_until
from support.models.checkpoints import random_checkpoint
from support.patience import PATIENCE_S
from support.processes.local import local_run
from support.router import client_packages
from support.router.fronts import Front, front
from support.router.routers import free_port
from support.router.vocabularies import byte_level, files, template

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]  # the first run installs them
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>'
HOT: Any = {"temperature": 1.3, "seed": 5, "max_tokens": 400}
ASKED: Any = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Köln?"}]
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
# What the command of this name is, but that its imports are not looked through for garbage: a quarter of their time.
LITELLM = "import gc; gc.set_threshold(100_000, 50, 50); from litellm import run_server; run_server()"
KEY = "sk-of-the-proxy-0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Servers:
    """Addresses with /v1. model: a real engine, as `octavo run` starts it. tools: a scripted one, that makes a call."""

    model: str
    tools: str
    front: Front


class City(BaseModel, extra="forbid"):
    name: str = Field(max_length=12)
    river: Literal["Rhine", "Danube"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Servers]:
    folder = tmp_path_factory.mktemp("clients")
    tokenizer = byte_level(specials=["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
    made = files(tokenizer, template("qwen25_tools"), bos_token="<s>", eos_token="</s>")
    ids = tuple(tokenizer.encode(CALL).ids)
    model = random_checkpoint(folder / "random")
    with local_run(model, "--device", "cpu", "--kv-cache-memory", "16Mi", "--served-name", "local") as run:
        async with front(folder, made=made, ids=ids, ends=True) as scripted:
            url = await asyncio.to_thread(run.until_serving)
            yield Servers(f"{url}/v1", f"{scripted.router.url}/v1", scripted)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def langchain(servers: Servers) -> dict[str, Any]:
    """What its calls gave, by server and call."""
    script = client_packages.CLIENTS / "langchain_calls.py"
    command = [await asyncio.to_thread(client_packages.python), script, servers.model, servers.tools]
    process = await asyncio.create_subprocess_exec(
        *map(str, command), env=client_packages.environment(), stdout=subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return dict(json.loads(said))


@pytest.fixture(scope="module")
def proxy(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """LiteLLM's address, with /v1."""
    port, log = free_port(), tmp_path_factory.mktemp("litellm") / "log"
    places = {"MODEL_URL": servers.model, "TOOLS_URL": servers.tools, "LITELLM_MASTER_KEY": KEY}
    command = [client_packages.python(), "-c", LITELLM, "--config", client_packages.CLIENTS / "litellm.yaml"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
    with ExitStack() as stack:
        out = stack.enter_context(log.open("wb"))
        process = subprocess.Popen(command, env=client_packages.environment() | places, stdout=out, stderr=out)
        stack.callback(process.wait, 30)
        stack.callback(process.send_signal, signal.SIGTERM)
        wait_until(lambda: _is_live(port) or process.poll() is not None, PATIENCE_S, "LiteLLM's proxy serves")
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}/v1"


def _is_live(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def plain(url: str, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0)


def greedy(url: str, tokens: int = 24) -> str:
    """What the model says to ASKED, without a package in between."""
    with plain(url) as client:
        answer = client.chat.completions.create(model="local", messages=ASKED, temperature=0, max_tokens=tokens)
    return answer.choices[0].message.content or ""


async def test_the_official_client_parses_into_a_class_at_once_and_streamed(servers: Servers) -> None:
    def blocking() -> tuple[City | None, City | None]:
        with plain(servers.model) as client:
            whole = client.chat.completions.parse(model="local", messages=ASKED, response_format=City, **HOT)
            with client.chat.completions.stream(model="local", messages=ASKED, response_format=City, **HOT) as stream:
                final = stream.get_final_completion()
        return whole.choices[0].message.parsed, final.choices[0].message.parsed

    async with openai.AsyncOpenAI(base_url=servers.model, api_key="none", max_retries=0) as client:
        whole = await client.chat.completions.parse(model="local", messages=ASKED, response_format=City, **HOT)
        async with client.chat.completions.stream(model="local", messages=ASKED, response_format=City, **HOT) as stream:
            final = await stream.get_final_completion()
    parsed = whole.choices[0].message.parsed
    assert isinstance(parsed, City) and final.choices[0].message.parsed == parsed
    assert await asyncio.to_thread(blocking) == (parsed, parsed)


async def test_the_official_client_without_asyncio_streams_lists_and_calls_tools(servers: Servers) -> None:
    def blocking() -> tuple[str, list[str], Any]:
        ask: Any = {"model": "local", "messages": ASKED, "temperature": 0, "max_tokens": 24}
        with plain(servers.model) as client, plain(servers.tools) as tools:
            pieces = [
                chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**ask, stream=True)
            ]
            listed = [model.id for model in client.models.list()]
            with tools.chat.completions.stream(model="m", messages=ASKED, tools=[TOOL], max_tokens=200) as stream:
                return "".join(pieces), listed, stream.get_final_completion().choices[0].message.tool_calls

    said, listed, calls = await asyncio.to_thread(blocking)
    assert said == await asyncio.to_thread(greedy, servers.model) and listed == ["local"]
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("get_weather", {"city": "Köln"})
    ]


async def test_langchain_invokes_and_streams_what_the_model_says(servers: Servers, langchain: dict[str, Any]) -> None:
    said = await asyncio.to_thread(greedy, servers.model)
    calls = langchain["model"]
    for name in ("invoke", "stream", "astream"):
        assert calls[name]["content"] == said, name
        assert calls[name]["reason"] == "length"
        assert calls[name]["usage"]["output_tokens"] == 24
    assert calls["stream"]["pieces"] > 1 and calls["astream"]["pieces"] > 1
    assert [one["content"] for one in calls["batch"]] == [said, said]


async def test_langchain_gets_structured_output(langchain: dict[str, Any]) -> None:
    for name in ("structured", "structured_dict"):
        city = langchain["model"][name]
        assert set(city) == {"name", "people", "river"} and city["river"] in ("Rhine", "Danube"), name
        assert len(city["name"]) <= 12 and 0 <= city["people"] <= 999


async def test_langchain_binds_tools_and_sends_their_results_back(servers: Servers, langchain: dict[str, Any]) -> None:
    for name in ("invoke", "stream"):
        answer = langchain["tools"][name]
        assert answer["calls"] == [{"name": "get_weather", "args": {"city": "Köln"}}], name
        assert answer["reason"] == "tool_calls" and not answer["invalid"]
    prompt = memoryview(servers.front.leader.submits[-1].prompt).cast("I").tolist()
    assert prompt, "the conversation with the tool's result was accepted"
    assert langchain["tools"]["after"]["content"]


async def test_litellms_proxy_passes_answers_on_streamed_and_not(servers: Servers, proxy: str) -> None:
    said = await asyncio.to_thread(greedy, servers.model)
    ask: Any = {"model": "local", "messages": ASKED, "temperature": 0, "max_tokens": 24}
    async with openai.AsyncOpenAI(base_url=proxy, api_key=KEY, max_retries=0) as client:
        whole = await client.chat.completions.create(**ask)
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                **ask, stream=True, stream_options={"include_usage": True}
            )
        ]
        completion = await client.completions.create(model="local", prompt="Köln", temperature=0, max_tokens=5)
    assert whole.choices[0].message.content == said and whole.choices[0].finish_reason == "length"
    assert whole.usage is not None and whole.usage.completion_tokens == 24
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == said and len(pieces) > 2
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 24
    assert completion.choices[0].text


async def test_litellms_proxy_passes_on_schemas_tools_and_refusals(proxy: str) -> None:
    async with openai.AsyncOpenAI(base_url=proxy, api_key=KEY, max_retries=0) as client:
        bound = await client.chat.completions.parse(model="local", messages=ASKED, response_format=City, **HOT)
        assert isinstance(bound.choices[0].message.parsed, City)
        called = await client.chat.completions.create(
            model="tools", messages=ASKED, tools=[TOOL], tool_choice="auto", max_tokens=200
        )
        (call,) = called.choices[0].message.tool_calls or ()
        assert call.type == "function" and json.loads(call.function.arguments) == {"city": "Köln"}
        with pytest.raises(openai.BadRequestError, match="temperature"):
            await client.chat.completions.create(model="local", messages=ASKED, temperature=7)


async def test_the_environment_of_the_packages_keeps_their_traffic_on_this_machine() -> None:
    """What they would send elsewhere goes to a port of ours where no process listens."""
    code = "import urllib.request\nurllib.request.urlopen('https://example.invalid/')"
    command = [client_packages.python(), "-c", code]
    done = subprocess.run(command, env=client_packages.environment(), capture_output=True, text=True)
    assert done.returncode != 0 and "Connection refused" in done.stderr
