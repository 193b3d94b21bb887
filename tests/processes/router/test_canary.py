"""Nothing that a client says, is answered, or proves itself with is found in a log, a metric or a status."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from support.models.checkpoints import successor_checkpoint
from support.router.grpc_calls import calling, joined, message_of, refused, streamed
from support.router.routers import RunningRouter, routing
from support.router.wire_http import get, post, raw
from support.worker.worker import WorkerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
OK = grpc.StatusCode.OK
KEY = "sk-canary-5e7f"
MARK = "canary"
SAID = "qrstuvwxyzabcdef"  # what the model answers to a prompt that ends in p
CHAT = [{"role": "user", "content": f"{MARK} p"}]


@dataclass(frozen=True, slots=True)
class Service:
    """Real processes, all logs at INFO in files."""

    router: RunningRouter
    worker: WorkerProcess
    router_log: Path

    async def traces(self) -> dict[str, str]:
        """All that it tells operators."""
        return {
            "the router's log": self.router_log.read_text(),
            "the worker's log": self.worker.log.read_text(),
            "the router's metrics": await self.router.metrics(),
            "the worker's metrics": self.worker.get("metrics", "/metrics")[1],
            "the group's status, from which events are made": str(await self.worker.status()),
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    folder = tmp_path_factory.mktemp("canary")
    keys, log = folder / "keys", folder / "router.log"
    keys.write_text(KEY + "\n")
    model = successor_checkpoint(folder / "model")
    worker = WorkerProcess(model, "--served-name", "m", "--log-level", "info").start()
    try:
        flags = ("--api-keys-file", str(keys), "--log-level", "info")
        async with routing([worker.addresses["serve"]], *flags, log=log) as router:
            yield Service(router, worker, log)
    finally:
        worker.close()


def bodies() -> list[tuple[str, dict[str, object]]]:
    prompt = {"prompt": f"{MARK} p", "max_tokens": len(SAID), "temperature": 0}
    chat = {"messages": CHAT, "max_tokens": 4}
    return [
        ("/v1/completions", prompt),
        ("/v1/completions", prompt | {"stream": True, "stop": f"{MARK}-stop"}),
        ("/v1/chat/completions", chat | {"user": MARK, "metadata": {MARK: MARK}}),
        ("/v1/responses", {"input": f"{MARK} p", "instructions": MARK, "max_output_tokens": 4}),
        ("/tokenize", {"prompt": f"{MARK} p"}),
        ("/v1/completions", prompt | {"max_tokens": 2000, "timeout": 0.05, "stream": True}),
        # refused
        ("/v1/completions", prompt | {"model": MARK}),
        ("/v1/completions", prompt | {MARK: MARK}),
        ("/v1/completions", prompt | {"temperature": MARK}),
        ("/v1/chat/completions", {"messages": [{"role": MARK, "content": MARK}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": MARK, MARK: MARK}]}),
        ("/v1/completions", {"prompt": f"{MARK} " * 10_000}),
        (f"/v1/{MARK}", prompt),
        (f"/v1/models/{MARK}", {}),
    ]


async def test_no_log_metric_or_status_holds_what_was_said(service: Service) -> None:
    router = service.router
    headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": MARK, "X-Octavo-Strict": "false"}
    answers = []
    for path, body in bodies():
        async with router.session.post(router.url + path, json=body, headers=headers) as answer:
            answers.append((answer.status, await answer.text()))
    assert [status for status, _ in answers[:5]] == [200] * 5
    assert answers[5][0] in (200, 504), "its time may be over before its first token"
    assert json.loads(answers[0][1])["choices"][0]["text"] == SAID
    assert {status for status, _ in answers[6:]} == {200, 400, 404, 405}
    for wrong in (f"Bearer {KEY}{MARK}", f"Basic {MARK}"):
        async with router.session.get(f"{router.url}/v1/models", headers={"Authorization": wrong}) as answer:
            assert answer.status == 401 and MARK not in await answer.text()
    # What never comes to a handler: lines too long, and not HTTP at all.
    for sent in (
        get("/v1/models", f"Authorization: Bearer {KEY}" + MARK * 3000),
        get("/v1/models", "X: a", f"Host: {MARK}"),
        get(f"/{MARK}?{MARK}", f"{MARK} : {MARK}"),
        f"{MARK} {MARK}\r\n\r\n".encode(),
        get("/v1/completions", f"Authorization: Bearer {KEY}", "Transfer-Encoding: chunked", method="POST")
        + f"{MARK}\r\n".encode(),
        post("/v1/completions", b'{"prompt": "%b' % MARK.encode(), f"Authorization: Bearer {KEY}"),
    ):
        answer = await raw(router.url, sent)
        assert answer.status in (0, 400, 404, 431), answer
    gone = asyncio.ensure_future(
        router.session.post(f"{router.url}/v1/completions", json=bodies()[0][1], headers=headers)
    )
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.sleep(0.5)
    await nothing_is_disclosed(service)


FORMS: list[dict[str, object]] = [
    {"guided_choice": [f"{MARK} one", f"{MARK} two"]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": MARK, "schema": {"const": MARK}}}},
    # refused
    {"guided_regex": f"{MARK}("},
    {"guided_grammar": f"start: {MARK}"},
    {"guided_json": {"$ref": f"#/{MARK}"}},
    {"structured_outputs": {MARK: MARK}},
    {"response_format": {"type": MARK}},
]
TOOLS: list[dict[str, object]] = [
    {"tools": [{"type": "function", "function": {"name": MARK, "parameters": {"type": "object"}}}]},
    {"tools": [{"type": "function", "function": {"name": f"{MARK} {MARK}"}}]},
    {"tools": [{"type": MARK}], "tool_choice": MARK},
    {"chat_template_kwargs": {MARK: MARK}},
    {"chat_template": f"{{{{ {MARK} }}}}"},
    {
        "messages": [
            *CHAT,
            {"role": "assistant", "tool_calls": [{"id": MARK, "function": {"name": MARK, "arguments": MARK}}]},
        ]
    },
]


async def test_forms_tools_and_templates_are_never_disclosed_good_or_bad(service: Service) -> None:
    router, statuses = service.router, []
    headers = {"Authorization": f"Bearer {KEY}"}
    asks = [("/v1/completions", {"prompt": f"{MARK} p", "max_tokens": 8} | form) for form in FORMS]
    asks += [("/v1/chat/completions", {"messages": CHAT, "max_tokens": 2} | fields) for fields in (*FORMS, *TOOLS)]
    large = {"messages": [{"role": "user", "content": MARK * 900_000}]}  # its helper has enough of it
    for path, body in [*asks, ("/v1/chat/completions", large)]:
        for stream in (False, True):
            async with router.session.post(
                router.url + path, json=body | {"stream": stream}, headers=headers
            ) as answer:
                statuses.append(answer.status)
                await answer.read()
    assert statuses[:4] == [200] * 4 and set(statuses[4:]) == {200, 400}
    await nothing_is_disclosed(service)


async def test_calls_over_grpc_are_never_disclosed_good_or_bad(service: Service) -> None:
    metadata = [("authorization", f"Bearer {KEY}"), ("x-request-id", MARK), (f"x-{MARK}", MARK)]
    good = {"prompt": f"{MARK} p", "max_tokens": len(SAID), "temperature": 0}
    bad = [{"model": MARK}, {"temperature": 7}, {"guided_regex": f"{MARK}("}, {"stop": [""]}, {"prompt": MARK * 4_000}]
    async with calling(service.router.grpc) as stub, grpc.aio.insecure_channel(service.router.grpc) as channel:
        whole = await stub.Generate(message_of(good), metadata=metadata)
        assert whole.outputs[0].text == SAID
        assert joined(await streamed(stub, message_of(good), metadata=metadata)).outputs[0].text == SAID
        for fields in bad:
            assert (await refused(stub.Generate(message_of(good | fields), metadata=metadata)))[0] != OK
        for method, message in (("Generate", MARK.encode()), ("Tokenize", b"\x0a\x06" + MARK.encode()), (MARK, b"")):
            assert (await refused(channel.unary_unary(f"/octavo.v1.Inference/{method}")(message, metadata=metadata)))[
                0
            ] != OK
        wrong = [("authorization", f"Bearer {KEY}{MARK}")]
        assert (await refused(stub.Generate(message_of(good), metadata=wrong)))[0] == grpc.StatusCode.UNAUTHENTICATED
        left = stub.Generate(message_of(good | {"max_tokens": 2000}), metadata=metadata)
        await asyncio.sleep(0.2)
        left.cancel()
        late = stub.Generate(message_of(good | {"max_tokens": 2000}), metadata=metadata, timeout=0.1)
        assert (await refused(late))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    await nothing_is_disclosed(service)


@pytest.mark.parametrize("name", ["rank", "core", "serve"])
async def test_a_process_that_dies_under_a_request_discloses_nothing_of_it(service: Service, name: str) -> None:
    router, headers = service.router, {"Authorization": f"Bearer {KEY}"}
    body = {"prompt": f"{MARK} p", "max_tokens": 2000, "temperature": 0, "stream": True, "ignore_eos": True}
    async with router.session.post(f"{router.url}/v1/completions", json=body, headers=headers) as answer:
        assert answer.status == 200
        await answer.content.readline()
        os.kill(service.worker.children()[name], signal.SIGABRT)  # faulthandler, where there is one, tells all it knows
        assert b"stream_cut" in await answer.read()
    async with asyncio.timeout(60):
        while await router.status("/readyz") != 200 or service.worker.get("health", "/readyz")[0] != 200:
            await asyncio.sleep(0.1)
    await nothing_is_disclosed(service)


async def nothing_is_disclosed(service: Service) -> None:
    for where, text in (await service.traces()).items():
        assert text, where
        for secret in (MARK, KEY, SAID, SAID[:8]):
            assert secret not in text, f"{secret} in {where}: {text[max(0, text.find(secret) - 500) :][:1000]}"


async def test_a_client_never_gets_its_own_key_back(service: Service) -> None:
    router = service.router
    headers = {"Authorization": f"Bearer {KEY}"}
    for path, body in bodies():
        async with router.session.post(router.url + path, json=body, headers=headers) as answer:
            assert KEY not in await answer.text() and KEY not in str(answer.headers)
