"""A router follows its leaders' EndpointSlices through watches that end, expire and break."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.router.jobs import until

from octavo.router.dispatch import discovery
from octavo.router.dispatch.discovery import ApiServer, Endpoints, in_cluster


def slice_of(name: str, version: int, *addresses: str, ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "addressType": "IPv4",
        "ports": [{"name": "serve", "port": 8500}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}} for address in addresses],
    }


class FakeApi:
    """Lists `slices`; each watch sends what is put into `events`. None ends the watch."""

    def __init__(self) -> None:
        self.slices: list[dict[str, Any]] = []
        self.version = 1
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.lists = 0
        self.watches: list[str] = []
        self.tokens: list[str] = []
        self.failures = 0
        self.refusal = 503, "not now"

    async def serve(self, request: web.Request) -> web.StreamResponse:
        assert request.query["labelSelector"] == "kubernetes.io/service-name=chat-leaders"
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.failures:
            self.failures -= 1
            return web.Response(status=self.refusal[0], text=self.refusal[1])
        if "watch" not in request.query:
            self.lists += 1
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": self.slices})
        self.watches.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await self.events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


@asynccontextmanager
async def following(
    api: FakeApi, token: Path | None = None, found: list[Endpoints] | None = None
) -> AsyncIterator[list[frozenset[str]]]:
    app = web.Application()
    app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices", api.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    seen: list[frozenset[str]] = []
    server = ApiServer(f"http://127.0.0.1:{port}", token_file=token)
    endpoints = Endpoints(server, "ns", "chat-leaders", seen.append)
    if found is not None:
        found.append(endpoints)
    task = asyncio.ensure_future(endpoints.run())
    try:
        yield seen
    finally:
        task.cancel()
        await runner.cleanup()


def change(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": item}


async def test_an_empty_list_is_news_too() -> None:
    async with following(FakeApi()) as seen:
        await until(lambda: seen == [frozenset()])


async def test_leaders_come_and_go_with_the_watch() -> None:
    api = FakeApi()
    api.slices = [slice_of("s1", 1, "10.0.0.1")]
    async with following(api) as seen:
        api.events.put_nowait(change("ADDED", slice_of("s2", 2, "10.0.0.2")))
        await until(lambda: seen and seen[-1] == {"10.0.0.1:8500", "10.0.0.2:8500"})
        api.events.put_nowait(change("MODIFIED", slice_of("s2", 3, "10.0.0.2", ready=False)))
        await until(lambda: seen[-1] == {"10.0.0.1:8500"})
        api.events.put_nowait(change("DELETED", slice_of("s1", 4)))
        await until(lambda: seen[-1] == frozenset())


async def test_a_watch_that_is_refused_is_silent_until_it_is_answered_again() -> None:
    api, found = FakeApi(), list[Endpoints]()
    async with following(api, found=found) as seen:
        await until(lambda: seen and api.watches)
        api.failures = 10**9  # as after the router's account was deleted
        api.events.put_nowait(None)
        await until(lambda: found[0].silent_s > 1.0)
        api.failures = 0
        await until(lambda: found[0].silent_s < 1.0)


async def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    api = FakeApi()
    async with following(api) as seen:
        api.events.put_nowait(change("ADDED", slice_of("s1", 7, "10.0.0.1")))
        api.events.put_nowait(change("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
        api.events.put_nowait(None)
        await until(lambda: len(api.watches) == 2)
        assert api.watches == ["1", "9"] and api.lists == 1
        assert seen[-1] == {"10.0.0.1:8500"}


async def test_what_vanished_while_the_watch_was_too_old_is_gone_after_the_new_list() -> None:
    api = FakeApi()
    api.slices = [slice_of("s1", 1, "10.0.0.1"), slice_of("s2", 1, "10.0.0.2")]
    async with following(api) as seen:
        await until(lambda: bool(api.watches))
        api.slices = [slice_of("s2", 1, "10.0.0.2")]
        api.version = 50
        api.events.put_nowait(change("ERROR", {"code": 410, "message": "too old resource version"}))
        await until(lambda: api.lists == 2 and len(api.watches) == 2)
        assert seen[-1] == {"10.0.0.2:8500"}
        assert api.watches[-1] == "50"


async def test_while_the_api_server_fails_the_known_leaders_stand() -> None:
    api = FakeApi()
    api.slices = [slice_of("s1", 1, "10.0.0.1")]
    async with following(api) as seen:
        await until(lambda: bool(api.watches))
        api.failures = 2
        api.events.put_nowait(None)
        await until(lambda: api.failures == 0 and api.lists == 2)
        assert seen == [{"10.0.0.1:8500"}]


async def test_a_connection_that_falls_silent_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "WATCH_TIMEOUT_S", -4.5)  # half a second of silence, with the margin
    api = FakeApi()
    async with following(api):
        await until(lambda: api.lists >= 2 and len(api.watches) >= 2)


async def test_the_token_is_read_again_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    api = FakeApi()
    async with following(api, token):
        await until(lambda: bool(api.watches))
        token.write_text("second\n")
        api.events.put_nowait(None)
        await until(lambda: len(api.watches) == 2)
        assert (api.tokens[0], api.tokens[-1]) == ("Bearer first", "Bearer second")


def test_the_api_server_is_found_by_the_pods_environment_and_missed_outside() -> None:
    found = in_cluster({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"})
    assert found.url == "https://10.96.0.1:443"
    with pytest.raises(ValueError, match="only in a pod"):
        in_cluster({})


async def test_an_answer_of_another_shape_does_not_end_the_watching() -> None:
    api = FakeApi()
    api.slices = [slice_of("s1", 1, "10.0.0.1")]
    async with following(api) as seen:
        await until(lambda: bool(api.watches))
        odd = slice_of("s2", 2, "10.0.0.2")
        odd["endpoints"][0]["addresses"] = []
        api.events.put_nowait(change("ADDED", odd))
        await until(lambda: api.lists == 2)
        assert seen == [{"10.0.0.1:8500"}]


async def test_a_refusal_is_logged_once_in_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    status = {"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}
    api.failures, api.refusal = 3, (401, json.dumps(status, indent=1) + "\n")
    async with following(api) as seen:
        await until(lambda: seen == [frozenset()])
    path = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices"
    expected = f"endpoints ns/chat-leaders: the API server answered 401 to {path}: Unauthorized"
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [expected]
