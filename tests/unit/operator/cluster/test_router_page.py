"""The operator reads a router's health page: does a group serve through it, and how are its list and its API keys."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from octavo.operator.cluster.status_client import Page, get_router_page, router_keys, router_report
from octavo.operator.groups.snapshot import RouterKeys, RouterReport
from octavo.router.frontend.http.server import HttpServer
from octavo.router.frontend.key_file import KeyFile
from octavo.router.frontend.request_pipeline import ServerState, Services
from octavo.router.jobs.generation import Dispatcher
from octavo.router.jobs.reachability import CUT_OFF_S, Reachability
from octavo.router.metrics import RouterMetrics
from octavo.router.tokenizer_pool.model_loader import ModelLoader
from octavo.shared.key_problem import KeyProblem


def page(status: int, body: bytes) -> AbstractAsyncContextManager[int]:
    """The port of a server whose pages are this."""

    async def handle(request: web.BaseRequest) -> web.Response:
        assert request.path == "/readyz"
        return web.Response(status=status, body=body)

    return serving(web.Server(handle))


@asynccontextmanager
async def serving(server: web.Server) -> AsyncIterator[int]:
    """Its port."""
    runner = web.ServerRunner(server)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_status_and_json_are_read() -> None:
    async with page(503, b'{"status": "no group", "groups": {"listed": 0}}') as port:
        assert await get_router_page("127.0.0.1", port) == (503, {"status": "no group", "groups": {"listed": 0}})


async def test_another_answer_or_none_is_no_page() -> None:
    async with page(200, b"<html>") as port:
        assert await get_router_page("127.0.0.1", port) is None
    assert await get_router_page("127.0.0.1", port) is None, "nothing listens"

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    assert await get_router_page("127.0.0.1", server.sockets[0].getsockname()[1]) is None
    server.close()


@pytest.mark.parametrize("silent_s", [0.0, CUT_OFF_S])
def test_a_page_says_since_when_no_group_serves_and_whether_the_list_is_stale(silent_s: float) -> None:
    pages = {"groups": Reachability(1, {}, of_ready=True, silent_s=silent_s).to_json()}
    stale = silent_s > 0
    assert router_report(200, pages, None, 50.0) == RouterReport(None, stale)
    first = router_report(503, pages, None, 50.7)
    assert first == RouterReport(50.0, stale)
    assert router_report(503, pages, first, 60.0) == first, "since the first of these answers"
    assert router_report(200, pages, first, 60.0) == RouterReport(None, stale)
    assert router_report(404, {}, first, 60.0) is None, "no page of a router"


@pytest.mark.parametrize(("has_group", "status"), [(True, 200), (False, 503)])
async def test_the_page_of_a_router_itself_is_understood(has_group: bool, status: int) -> None:
    reachability = Reachability(1, {} if has_group else {"10.0.0.1:8500": CUT_OFF_S}, of_ready=True, silent_s=CUT_OFF_S)
    dispatcher = cast(Dispatcher, SimpleNamespace(ready=has_group, synced=True, reachability=reachability))
    loader = cast(ModelLoader, SimpleNamespace(loaded=object()))
    services = Services(dispatcher, loader, RouterMetrics(), ServerState(), "", 1.0)
    async with serving(HttpServer(services).build()) as port:
        found = await get_router_page("127.0.0.1", port)
        assert found is not None and found[0] == status
        assert router_report(*found, None, 50.0) == RouterReport(None if has_group else 50.0, stale=True)


@pytest.mark.parametrize("missing", [["x"], [{}], {}, None, [{"skew": ""}]])
def test_a_page_without_a_skew_says_none(missing: object) -> None:
    assert router_report(200, {"groups": {"missing": missing}}, None, 50.0) == RouterReport()


def test_a_page_says_which_group_is_of_a_release_too_far_away() -> None:
    missing = {"10.0.0.1:8500": 3.0, "10.0.0.2:8500": 4.0}
    groups = Reachability(3, missing, True, 0.0, {"10.0.0.2:8500": "the group is of release 9"}).to_json()
    assert router_report(200, {"groups": groups}, None, 50.0) == RouterReport(skew="the group is of release 9")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ({"status": "ok", "keys": {"valid": True}}, RouterKeys(True)),
        (
            {"keys": {"valid": False, "problem": "missing", "message": "no file"}},
            RouterKeys(False, KeyProblem.MISSING, "no file"),
        ),
        ({"keys": {"valid": False, "problem": "of a newer router", "message": "x"}}, None),
        ({"status": "ok"}, None),
        ({"keys": {}}, None),
        ({"keys": 3}, None),
        ({"keys": []}, None),
        ({}, None),
    ],
)
def test_a_page_tells_of_the_keys_or_nothing(page: Page, expected: RouterKeys | None) -> None:
    assert router_keys(page) == expected
    for status in (200, 503):
        report = router_report(status, page, None, 50.0)
        assert report is not None and report.keys == expected


@pytest.mark.parametrize(("has_group", "since"), [(True, None), (False, 50.0)])
async def test_a_router_without_a_valid_key_is_not_ready_and_yet_says_whether_it_reaches_a_group(
    has_group: bool, since: float | None, tmp_path: Path
) -> None:
    reachability = Reachability(1, {} if has_group else {"10.0.0.1:8500": 1.0}, of_ready=True)
    dispatcher = cast(Dispatcher, SimpleNamespace(ready=has_group, synced=True, reachability=reachability))
    loader = cast(ModelLoader, SimpleNamespace(loaded=object()))
    file = KeyFile(tmp_path / "keys")
    services = Services(dispatcher, loader, RouterMetrics(), ServerState(), "", 1.0, key_file=file)
    async with serving(HttpServer(services).build()) as port:
        found = await get_router_page("127.0.0.1", port)
    assert found is not None and found[0] == 503
    report = router_report(*found, None, 50.0)
    assert report == RouterReport(since, False, RouterKeys(False, KeyProblem.MISSING, "there is no such file"))
