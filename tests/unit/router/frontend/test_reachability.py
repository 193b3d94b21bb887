"""A router says which of the listed groups it has no stream to, and is not ready when it reaches none."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from octavo.router.frontend.http.server import HttpServer
from octavo.router.frontend.request_pipeline import ServerState, Services
from octavo.router.jobs.generation import Dispatcher
from octavo.router.jobs.reachability import CUT_OFF_S, Reachability
from octavo.router.metrics import RouterMetrics
from octavo.router.tokenizer_pool.model_loader import ModelLoader

SHORT, LONG = CUT_OFF_S - 1, CUT_OFF_S


@pytest.mark.parametrize(
    ("listed", "missing", "cut_off"),
    [
        (0, {}, False),  # no group is: requests are held
        (2, {}, False),
        (2, {"a": LONG}, False),  # another serves
        (2, {"a": LONG, "b": SHORT}, False),
        (2, {"a": LONG, "b": LONG}, True),
    ],
)
def test_a_router_is_cut_off_when_it_has_reached_no_serving_group_for_a_minute(
    listed: int, missing: dict[str, float], cut_off: bool
) -> None:
    assert Reachability(listed, missing, of_ready=True).is_cut_off is cut_off
    assert not Reachability(listed, missing, of_ready=False).is_cut_off, "a fixed list names groups that load, too"


@pytest.mark.parametrize(
    ("listed", "missing", "silent_s", "cut_off"),
    [
        (0, {}, SHORT, False),
        (0, {}, LONG, True),  # groups may serve that it cannot learn of
        (1, {"a": SHORT}, LONG, True),
        (2, {"a": LONG}, LONG, False),  # one stream works: an API server that is away ends nothing
    ],
)
def test_a_router_that_lost_its_watch_for_a_minute_is_cut_off_unless_it_has_a_group(
    listed: int, missing: dict[str, float], silent_s: float, cut_off: bool
) -> None:
    found = Reachability(listed, missing, of_ready=True, silent_s=silent_s)
    assert found.is_cut_off is cut_off
    assert ("stale_seconds" in found.to_json()) is (silent_s >= CUT_OFF_S)


async def asked(reachability: Reachability, path: str) -> tuple[int, Any]:
    dispatcher = cast(Dispatcher, SimpleNamespace(ready=False, synced=True, reachability=reachability))
    server = HttpServer(Services(dispatcher, ModelLoader(dispatcher), RouterMetrics(), ServerState(), "", 1.0)).build()
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as response:
            return response.status, await response.json()
    finally:
        await runner.cleanup()


async def test_health_pages_name_the_groups_that_are_missing_and_since_when() -> None:
    reachability = Reachability(2, {"10.0.0.1:8500": 7.26}, of_ready=True)
    groups = {"listed": 2, "connected": 1, "missing": [{"address": "10.0.0.1:8500", "seconds": 7.3}]}
    for path, status in (("/routerz", 200), ("/readyz", 503), ("/health", 503)):
        code, page = await asked(reachability, path)
        assert (code, page["groups"]) == (status, groups)


async def test_a_router_that_is_cut_off_takes_no_clients_and_goes_on() -> None:
    reachability = Reachability(1, {"10.0.0.1:8500": LONG}, of_ready=True)
    code, page = await asked(reachability, "/routerz")
    assert code == 503 and "no stream to a group" in page["status"]
    assert (await asked(reachability, "/livez"))[0] == 200
    assert (await asked(replace(reachability, of_ready=False), "/routerz"))[0] == 200
