"""A cache follows the API server through news, gaps and namesakes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from octavo.operator.cluster.informers import Cache, Caches
from octavo.operator.cluster.kube import POD, Kube, KubeError, KubeUnreachable

Object = dict[str, Any]


def pod(name: str, version: int, service: str = "chat") -> Object:
    meta = {"namespace": "ns", "name": name, "resourceVersion": str(version), "labels": {"octavo.dev/service": service}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


class Script:
    """An API server that answers lists and watches as written; at the end it is silent."""

    def __init__(
        self, lists: Sequence[tuple[list[Object], str] | KubeError], watches: list[list[tuple[str, Object] | KubeError]]
    ) -> None:
        self.lists, self.watches = list(lists), watches
        self.versions: list[str] = []
        self.over = asyncio.Event()

    async def pages(self, *_: object, **__: object) -> AsyncIterator[tuple[list[Object], str]]:
        answer = self.lists.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        items, version = answer
        for page in [[item] for item in items] or [[]]:
            yield page, version

    async def watch(
        self, _kind: object, _namespace: object, version: str, *_: object
    ) -> AsyncIterator[tuple[str, Object]]:
        self.versions.append(version)
        if not self.watches:
            self.over.set()
            await asyncio.Event().wait()
        for event in self.watches.pop(0):
            if isinstance(event, KubeError):
                raise event
            yield event


async def _follow(script: Script) -> tuple[Cache, list[str]]:
    changed: list[str] = []
    cache = Cache(
        cast(Kube, script), POD, "ns", "octavo.dev/service", lambda item: changed.append(item["metadata"]["name"])
    )
    task = asyncio.create_task(cache.run())
    await asyncio.wait_for(script.over.wait(), 10)
    task.cancel()
    return cache, changed


def _names(cache: Cache, key: str = "ns/chat") -> list[str]:
    return [item["metadata"]["name"] for item in cache.of_service(key)]


async def test_a_new_list_drops_what_vanished_while_the_watch_was_broken() -> None:
    lists = [([pod("a", 1), pod("b", 2)], "2"), ([pod("b", 2), pod("c", 8)], "9")]
    cache, changed = await _follow(Script(lists, [[KubeError(410, "Expired", "too old")]]))
    assert _names(cache) == ["b", "c"]
    assert changed == ["a", "b", "a", "c"]  # a is reported again when it goes; b did not change


async def test_a_broken_watch_goes_on_from_the_last_version() -> None:
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
    script = Script([([], "2")], [[("ADDED", pod("a", 5)), bookmark, KubeUnreachable("reset")]])
    cache, _ = await _follow(script)
    assert script.versions == ["2", "7"] and _names(cache) == ["a"]


async def test_an_expired_version_inside_a_watch_leads_to_a_new_list() -> None:
    expired = ("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    cache, _ = await _follow(Script([([pod("a", 1)], "1"), ([], "9")], [[expired]]))
    assert _names(cache) == []


async def test_old_news_does_not_undo_the_answer_to_our_own_write() -> None:
    cache, _ = await _follow(Script([([pod("a", 1)], "1")], []))
    cache.store_written(pod("a", 7))
    cache.store_written(pod("a", 5))
    kept = cache.get("ns", "a")
    assert kept is not None and kept["metadata"]["resourceVersion"] == "7"


async def test_a_pod_that_changes_its_service_leaves_the_old_one() -> None:
    cache, _ = await _follow(Script([([pod("a", 1)], "1")], [[("MODIFIED", pod("a", 2, "other"))]]))
    assert _names(cache) == [] and _names(cache, "ns/other") == ["a"]


async def test_a_late_answer_to_our_own_write_does_not_bring_back_what_was_deleted_since() -> None:
    news = [("ADDED", pod("a", 5)), ("DELETED", pod("a", 7))]
    cache, _ = await _follow(Script([([], "1")], [news]))
    cache.store_written(pod("a", 6))
    assert cache.get("ns", "a") is None
    cache.store_written(pod("a", 8))
    assert _names(cache) == ["a"]  # what the watch has yet to tell is known at once


async def test_a_kind_that_may_not_be_read_is_said_once_and_read_once_it_may_be() -> None:
    forbidden = KubeError(403, "Forbidden", "pods is forbidden: User octavo cannot list it")
    script = Script([forbidden, forbidden, ([pod("a", 1)], "1")], [])
    seen: list[tuple[str, bool]] = []
    cache = Cache(
        cast(Kube, script), POD, "ns", "", lambda _: None, lambda: seen.append((cache.refusal, cache.synced.is_set()))
    )
    task = asyncio.create_task(cache.run())
    await asyncio.wait_for(cache.answered.wait(), 10)
    assert not cache.synced.is_set() and cache.refusal == forbidden.message
    await asyncio.wait_for(script.over.wait(), 10)
    task.cancel()
    assert seen == [(forbidden.message, False), ("", True)] and _names(cache) == ["a"]


async def test_a_permission_that_is_lost_during_the_watch_is_said_and_the_last_state_kept() -> None:
    forbidden = KubeError(403, "Forbidden", "pods is forbidden")
    script = Script([([pod("a", 1)], "1"), forbidden, ([], "5")], [[forbidden]])
    kept: list[list[str]] = []
    cache = Cache(cast(Kube, script), POD, "ns", "", lambda _: None, lambda: kept.append(_names(cache)))
    task = asyncio.create_task(cache.run())
    await asyncio.wait_for(script.over.wait(), 10)
    task.cancel()
    assert kept[0] == ["a"] and not cache.refusal and _names(cache) == []


async def test_all_other_kinds_are_waited_for_and_named() -> None:
    caches = Caches(cast(Kube, None), ("ns", "other"), lambda _: None, lambda _: None)
    for cache in caches:
        cache.answered.set()
    waiting = asyncio.create_task(caches.wait_synced())
    await asyncio.sleep(0)
    assert not waiting.done(), "without the services there is nothing to do"
    for cache in caches:
        if cache.kind.kind == "InferenceService":
            cache.synced.set()
        elif cache.kind.kind == "NetworkPolicy" and cache.namespace == "ns":
            cache.refusal = "cannot list"
    await asyncio.wait_for(waiting, 10)
    assert caches.unreadable("ns") == (("NetworkPolicy", "cannot list"),) and caches.unreadable("other") == ()


class Paged(Kube):
    """An API server that gives five pods, two a page."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    async def call(self, _method: str, _path: str, query: Any = None, *_: Any, **__: Any) -> Object:
        self.asked.append(dict(query))
        start = int(query.get("continue", 0))
        more = {"continue": str(start + 2)} if start < 4 else {}
        names = [f"p{number}" for number in range(start, min(start + 2, 5))]
        return {"metadata": {"resourceVersion": "9", **more}, "items": [pod(name, 1) for name in names]}


async def test_a_long_list_is_read_page_by_page() -> None:
    kube = Paged()
    pages = [page async for page in kube.pages(POD, "ns", labelSelector="octavo.dev/service")]
    assert [[item["metadata"]["name"] for item in items] for items, _ in pages] == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert {version for _, version in pages} == {"9"}
    assert [query.get("continue") for query in kube.asked] == [None, "2", "4"]
    assert all(query["limit"] and query["labelSelector"] for query in kube.asked)
