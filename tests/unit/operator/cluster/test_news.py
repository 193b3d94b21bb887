"""What counts as a user's change, and as an old CRD."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from octavo.operator.cluster import crd_check
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import SERVICE_CR, Kind, Kube, KubeUnreachable, Object
from octavo.operator.main import spec_changed


def _resource(uid: str, generation: int) -> dict[str, Any]:
    meta = {"namespace": "ns", "name": "chat", "uid": uid, "generation": generation}
    return {"kind": "InferenceService", "metadata": meta}


def test_a_change_of_the_spec_is_news_and_one_of_the_status_is_not() -> None:
    seen: dict[str, tuple[str, int]] = {}
    assert [spec_changed(seen, _resource("a", number)) for number in (1, 1, 2, 2)] == [True, False, True, False]


def test_a_service_made_again_under_its_name_is_news() -> None:
    seen: dict[str, tuple[str, int]] = {}
    assert spec_changed(seen, _resource("a", 1)) and spec_changed(seen, _resource("b", 1))


class _Unreachable:
    async def call(self, *_: object, **__: object) -> dict[str, Any]:
        raise KubeUnreachable("no route")


async def test_an_api_server_that_is_silent_is_not_called_one_without_the_crd(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crd_check, "RETRY_S", 0.01)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(crd_check.wait_for_crd(cast(Kube, _Unreachable())), 0.2)
    assert "no route" in caplog.text and "not installed" not in caplog.text


class _Api:
    """A server of one service that was there before, and of one that is made later."""

    async def pages(self, kind: Kind, *_: object, **__: object) -> AsyncIterator[tuple[list[Object], str]]:
        yield ([_service("old", 1)] if kind is SERVICE_CR else []), "1"

    async def watch(self, kind: Kind, *_: object) -> AsyncIterator[tuple[str, Object]]:
        if kind is SERVICE_CR:
            yield "ADDED", _service("new", 2)
        await asyncio.Event().wait()


def _service(name: str, version: int) -> Object:
    meta = {"namespace": "ns", "name": name, "resourceVersion": str(version), "uid": name, "generation": 1}
    return {"kind": SERVICE_CR.kind, "metadata": meta}


async def test_what_is_there_at_the_start_is_no_news() -> None:
    heard, is_heard = dict[str, bool](), asyncio.Event()

    def on_service(item: Object) -> None:
        heard[item["metadata"]["name"]] = caches.listed()
        if "new" in heard:
            is_heard.set()

    caches = Caches(cast(Kube, _Api()), ("ns",), on_service, lambda _: None)
    task = asyncio.create_task(caches.run())
    await asyncio.wait_for(is_heard.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert heard == {"old": False, "new": True}
