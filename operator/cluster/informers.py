"""Informers: the API server's objects of each kind, kept current by list and watch with a label selector.

    list ──> replace the cache ──> watch from the list's version ──┬─ timeout ────────> watch from the last version
      ^                                                            └─ 410, version gone ───> list
      └── a broken connection resumes the watch after a back-off; only an answer of 410 needs a new list

A new list replaces the cache, so that objects which were deleted while a watch was broken are removed.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from functools import partial

from octavo.operator.cluster.kube import (
    CHILD_KINDS,
    CONTROLLER_REVISION,
    POD,
    SERVICE_CR,
    Kind,
    Kube,
    KubeError,
    Object,
)
from octavo.operator.cluster.string_interning import StringInterner
from octavo.operator.cluster.trim import trim
from octavo.operator.groups import names

WATCH_S = (240, 300)  # timeout of a watch, drawn at random so that watches do not renew together
SHORTEST_S = 1.0
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.2, 15.0

log = logging.getLogger(__name__)
OnChange = Callable[[Object], None]


class Cache:
    """The objects of one kind in one namespace, or in all."""

    def __init__(
        self,
        kube: Kube,
        kind: Kind,
        namespace: str | None,
        selector: str,
        on_change: OnChange,
        on_access: Callable[[], None] = lambda: None,
    ) -> None:
        """on_access: called when `refusal` changes."""
        self._kube, self.kind, self.namespace, self._selector = kube, kind, namespace, selector
        self._on_change, self._on_access = on_change, on_access
        self._objects: dict[tuple[str, str], Object] = {}
        self._by_service: dict[str, dict[str, Object]] = {}
        self._interner = StringInterner()
        self._version = ""
        self.synced = asyncio.Event()
        self.refusal = ""  # the server's words, while it refuses to list or to watch this kind; else empty
        self.answered = asyncio.Event()  # listed, or refused
        self.last_event_at = time.monotonic()  # of the last list, event or bookmark

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    def of_service(self, key: str) -> list[Object]:
        """The objects with the service's label, in the order of their names."""
        return [item for _, item in sorted(self._by_service.get(key, {}).items())]

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    async def run(self) -> None:
        """List and watch for ever."""
        backoff = FIRST_BACKOFF_S
        while True:
            started = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                # A watch lasts minutes; one that ends at once (a proxy, a server that stops) must not spin.
                await asyncio.sleep(max(0.0, SHORTEST_S - (time.monotonic() - started)))
            except KubeError as error:
                if self.last_event_at > started:
                    backoff = FIRST_BACKOFF_S
                if error.status in (403, 404):
                    self._refused(error.message)
                if error.status == 410:
                    self._version = ""
                log.warning("watch of %s in %s broke, again in %.1f s: %s", *self._where(), backoff, error)
                await asyncio.sleep(backoff * random.uniform(0.8, 1.2))
                backoff = min(backoff * 2, MAX_BACKOFF_S)

    def _refused(self, words: str) -> None:
        """The kind may not be read, or the server has no such kind: the others go on, and services say which it is."""
        self.last_event_at = time.monotonic()  # the server answers: this watch is not dead
        self.answered.set()
        self._version = ""  # a list shows at once when it may be read again; a watch may be silent
        if self.refusal != words:
            self.refusal = words
            self._on_access()

    def _permitted(self) -> None:
        self.last_event_at = time.monotonic()
        if self.refusal:
            self.refusal = ""
            self._on_access()

    def _where(self) -> tuple[str, str]:
        return self.kind.plural, self.namespace or "all namespaces"

    async def _list(self) -> None:
        query = {"labelSelector": self._selector} if self._selector else {}
        fresh, version = dict[tuple[str, str], Object](), ""
        async for items, at in self._kube.pages(self.kind, self.namespace, **query):
            version = at
            fresh |= {_key(item): self._trimmed(item) for item in items}
        for key, old in list(self._objects.items()):
            if key not in fresh and _version(old) <= int(version):
                self._forget(old)
        for item in fresh.values():
            self._keep(item)
        self._version = version
        self.synced.set()
        self.answered.set()
        self._permitted()

    async def _watch(self) -> None:
        timeout_s = random.randint(*WATCH_S)
        async for type_, item in self._kube.watch(self.kind, self.namespace, self._version, self._selector, timeout_s):
            self._permitted()
            if type_ == "ERROR":
                raise KubeError(int(item.get("code") or 0), str(item.get("reason", "")), str(item.get("message", "")))
            self._version = item["metadata"]["resourceVersion"]
            if type_ == "DELETED":
                self._forget(item)
            elif type_ != "BOOKMARK":
                self._keep(self._trimmed(item))

    def _keep(self, item: Object) -> None:
        """Store the object unless the cache has a newer version."""
        old = self._objects.get(_key(item))
        if old is not None and _version(old) >= _version(item):
            return
        if old is not None and service_key(old) != service_key(item):
            self._forget(old)
        self._objects[_key(item)] = item
        self._by_service.setdefault(service_key(item), {})[item["metadata"]["name"]] = item
        self._on_change(item)

    def store_written(self, item: Object) -> None:
        """Store the answer to a write, unless the watch is past its version: the object may be deleted by now."""
        if _version(item) > int(self._version or 0):
            self._keep(self._trimmed(item))

    def _trimmed(self, item: Object) -> Object:
        """The object without the fields that the operator does not read."""
        return self._interner.interned(trim(item))

    def _forget(self, item: Object) -> None:
        known = self._objects.get(_key(item))
        if known is not None and _version(known) > _version(item):
            return  # an event of an earlier object of the same name
        self._objects.pop(_key(item), None)
        key = service_key(item)
        self._by_service.get(key, {}).pop(item["metadata"]["name"], None)
        if not self._by_service.get(key):
            self._by_service.pop(key, None)
        self._on_change(item)


class Caches:
    """Caches of every kind that reconciling reads, for the operator's namespaces."""

    def __init__(self, kube: Kube, namespaces: tuple[str, ...], on_service: OnChange, on_child: OnChange) -> None:
        scopes: tuple[str | None, ...] = namespaces or (None,)
        self._caches: dict[str, list[Cache]] = {}
        self._started: float | None = None
        for kind in (SERVICE_CR, *CHILD_KINDS, POD):
            on_change = on_service if kind is SERVICE_CR else on_child
            self._caches[kind.kind] = [
                Cache(kube, kind, scope, _selector(kind), on_change, partial(self._announce, on_service, scope))
                for scope in scopes
            ]

    def __iter__(self) -> Iterator[Cache]:
        return (cache for caches in self._caches.values() for cache in caches)

    async def run(self) -> None:
        self._started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for cache in self:
                group.create_task(cache.run(), name=f"watch {cache.kind.plural}")

    async def wait_synced(self) -> None:
        """Until the services are listed, and each other kind is listed or refused."""
        for cache in self._caches[SERVICE_CR.kind]:
            await cache.synced.wait()
        for cache in self:
            await cache.answered.wait()

    def _announce(self, on_service: OnChange, namespace: str | None) -> None:
        """A kind has become readable, or unreadable: its services have another status."""
        for resource in self.services():
            if namespace in (None, resource["metadata"]["namespace"]):
                on_service(resource)

    def unreadable(self, namespace: str) -> tuple[tuple[str, str], ...]:
        """(kind, the server's words) of the kinds that may not be read in a namespace."""
        return tuple(
            (cache.kind.kind, cache.refusal) for cache in self if cache.refusal and cache.namespace in (None, namespace)
        )

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """None also for the kinds that are not cached: Secrets."""
        found = (cache.get(namespace, name) for cache in self._caches.get(kind, ()))
        return next((item for item in found if item is not None), None)

    def of_service(self, kind: str, key: str) -> list[Object]:
        return [item for cache in self._caches[kind] for item in cache.of_service(key)]

    def store_written(self, item: Object) -> None:
        """The answer to a write of ours: what we did is known at once, not when the watch tells."""
        namespace = item["metadata"]["namespace"]
        for cache in self._caches.get(item.get("kind", ""), ()):
            if cache.namespace in (None, namespace):
                cache.store_written(item)

    def services(self) -> list[Object]:
        return [item for cache in self._caches[SERVICE_CR.kind] for item in cache]

    def listed(self) -> bool:
        """True once the InferenceServices have been listed."""
        return all(cache.synced.is_set() for cache in self._caches[SERVICE_CR.kind])

    def silent_s(self) -> float:
        """Seconds since the last event of the watch that has been silent longest; 0 before the watches start."""
        if self._started is None:
            return 0.0
        return time.monotonic() - max(self._started, min(cache.last_event_at for cache in self))


def _selector(kind: Kind) -> str:
    """Label selector of a kind's list-watch."""
    if kind is SERVICE_CR:
        return ""
    # StatefulSets have ControllerRevisions of their own, with the labels of their pods.
    return f"{names.SERVICE},!{names.GROUP}" if kind is CONTROLLER_REVISION else names.SERVICE


def service_key(item: Object) -> str:
    """`namespace/name` of the service that an object belongs to."""
    meta = item["metadata"]
    own = item.get("kind") == SERVICE_CR.kind
    return f"{meta['namespace']}/{meta['name'] if own else meta.get('labels', {}).get(names.SERVICE, '')}"


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _version(item: Object) -> int:
    """Resource versions of one kind are comparable numbers: documented since Kubernetes 1.35, true before."""
    return int(item["metadata"]["resourceVersion"])
