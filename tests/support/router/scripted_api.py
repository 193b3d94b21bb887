"""An OpenAI-compatible server that answers by a test's script, delays included; and `octavo bench` beside it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from support.patience import PATIENCE_S
from support.processes.commands import Command, Done, start

CUT = b"cut"  # in a script: the connection ends here, in the middle of the answer


@dataclass(frozen=True, slots=True)
class Script:
    """parts: (seconds to wait, bytes to send) of a stream; a status other than 200 has its body in the first part."""

    parts: Sequence[tuple[float, bytes]] = ()
    status: int = 200


def data(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(content: str, reason: str | None = None) -> bytes:
    """A chunk of a completion."""
    return data(choices=[{"index": 0, "text": content, "finish_reason": reason}])


def delta(reason: str | None = None, **content: Any) -> bytes:
    """A chunk of a chat."""
    return data(choices=[{"index": 0, "delta": content, "finish_reason": reason}])


def usage(prompt: int, output: int) -> bytes:
    return data(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": output})


DONE = b"data: [DONE]\n\n"
PLAIN = Script([(0, text("a") + text("b")), (0, text("c", "length") + usage(7, 3) + DONE)])


@dataclass
class ScriptedApi:
    """What it heard, and the most requests that were under way at once."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    under_way: int = 0
    most: int = 0


@asynccontextmanager
async def scripted_api(
    script: Callable[[int], Script] = lambda number: PLAIN, tls: Path | None = None
) -> AsyncIterator[ScriptedApi]:
    """script: of request number 0, 1, ...; tls: folder with tls.crt and tls.key."""
    api = ScriptedApi()

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "org/scripted", "object": "model"}]})

    async def answer(request: web.Request) -> web.StreamResponse:
        number = len(api.requests)
        api.requests.append(await request.json())
        api.headers.append(dict(request.headers))
        api.paths.append(request.path)
        api.under_way += 1
        api.most = max(api.most, api.under_way)
        try:
            return await _play(request, script(number))
        finally:
            api.under_way -= 1

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/completions", answer)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    context = None
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls / "tls.crt", tls / "tls.key")
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    api.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()


async def _play(request: web.Request, script: Script) -> web.StreamResponse:
    if script.status != 200:
        return web.Response(status=script.status, body=script.parts[0][1] if script.parts else b"")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for delay_s, part in script.parts:
        await asyncio.sleep(delay_s)
        if part == CUT:
            assert request.transport is not None
            request.transport.abort()
            break
        await response.write(part)
    return response


class Ended(Done):
    """With its figures."""

    def figure(self, name: str) -> float:
        """The number of a line of the printed block."""
        line = next(line for line in self.out.splitlines() if line.startswith(f"{name}:"))
        return float(line.removeprefix(f"{name}:"))


@asynccontextmanager
async def benching(*arguments: object) -> AsyncIterator[Command]:
    """`octavo bench ...`; gone afterwards."""
    process = await start("bench", *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            with suppress(TimeoutError):  # a server that it has left behind may hold its pipes
                await asyncio.wait_for(process.communicate(), PATIENCE_S)


async def bench(*arguments: object, timeout_s: float = 2 * PATIENCE_S) -> Ended:
    """From beginning to end."""
    async with benching(*arguments) as process:
        out, err = await asyncio.wait_for(process.communicate(), timeout_s)
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())
