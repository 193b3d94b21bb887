"""What the Writer sends to the API server, and which answers mean that nothing is left to do."""

import time
from collections.abc import Mapping
from typing import Any, cast

import pytest
from support.cluster.services import resource

from octavo.operator.cluster.apply import NameConflict, NotLeading, Postponed, Writer
from octavo.operator.cluster.informers import Caches
from octavo.operator.cluster.kube import FIELD_MANAGER, Kind, Kube, KubeError, Object
from octavo.operator.cluster.trim import trim
from octavo.operator.drift.restores import FIRST_DELAY_S, FREE
from octavo.operator.drift.turns import BURST, INTERVAL_S
from octavo.operator.groups.snapshot import FieldConflict
from octavo.operator.metrics import Metrics
from octavo.operator.planning.actions import Delete

OWNER = {"uid": "uid-chat"}
DESIRED = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"namespace": "ns", "name": "chat", "ownerReferences": [OWNER]},
    "spec": {"type": "ClusterIP"},
}


def live(uid: str = "uid-1", owner: Mapping[str, str] = OWNER) -> Object:
    """The Service, of another type."""
    metadata = {**DESIRED["metadata"], "uid": uid, "ownerReferences": [owner]}  # type: ignore[dict-item]  # an object
    return {**DESIRED, "metadata": metadata, "spec": {"type": "NodePort"}}


class Server:
    """An API server and the caches of its objects."""

    def __init__(self) -> None:
        self.cached: Object | None = None
        self.stored: Object | None = None
        self.knows = frozenset({"ready", "reason"})  # fields of the CRD's status
        self.error: KubeError | None = None
        self.sent: list[tuple[str, Any]] = []  # verb and body
        self.rewrites: dict[str, Any] = {}  # by an admission webhook

    async def get(self, *_: object) -> Object | None:
        return self.stored

    async def apply(self, kind: Kind, body: Object, _timeout_s: float, subresource: str | None = None) -> Object:
        self.sent.append((subresource or "apply", body))
        status = {key: value for key, value in (body.get("status") or {}).items() if key in self.knows}
        return {**body, "kind": kind.kind, "status": status, **self.rewrites}

    async def call(self, verb: str, path: str, *_: object, body: Object, **__: object) -> Object:
        self.sent.append((f"{verb} {path}", body))
        if self.error:
            raise self.error
        return {"kind": "Status"}

    def cache(self, *_: object) -> Object | None:
        return self.cached


def writer(server: Server, *, leads: bool = True) -> Writer:
    class _Caches:
        get = staticmethod(server.cache)
        store_written = staticmethod(lambda _: None)

    return Writer(cast(Kube, server), cast(Caches, _Caches), lambda *_: leads, Metrics())


async def deleted(one: Writer, grace_s: int | None = None) -> bool:
    """A pod."""
    return await one.delete("ns", Delete("v1", "Pod", "chat-0-0", "uid-pod", "why", grace_s), "uid-chat")


@pytest.mark.parametrize("is_cached", [True, False])
async def test_an_apply_holds_for_the_object_that_was_seen_and_for_no_namesake(is_cached: bool) -> None:
    server = Server()
    server.cached, server.stored = live() if is_cached else None, live()
    assert await writer(server).apply(DESIRED, "uid-chat")
    ((verb, body),) = server.sent
    assert verb == "apply" and body["metadata"]["uid"] == "uid-1"


async def test_an_object_that_does_not_exist_is_applied_without_a_uid() -> None:
    server = Server()
    assert await writer(server).apply(DESIRED, "uid-chat")
    assert server.sent == [("apply", DESIRED)]


@pytest.mark.parametrize("is_cached", [True, False])
async def test_an_object_of_another_owner_is_not_written(is_cached: bool) -> None:
    server = Server()
    other = live(owner={"uid": "uid-other"})
    server.cached, server.stored = other if is_cached else None, other
    with pytest.raises(NameConflict):
        await writer(server).apply(DESIRED, "uid-chat")
    assert server.sent == []


async def test_an_object_that_is_as_desired_or_is_being_deleted_is_not_written() -> None:
    server = Server()
    server.cached = {**live(), "spec": DESIRED["spec"]}
    assert not await writer(server).apply(DESIRED, "uid-chat")
    gone = live()
    server.cached = {**gone, "metadata": {**gone["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert not await writer(server).apply(DESIRED, "uid-chat")
    assert server.sent == []


@pytest.mark.parametrize("grace_s", [None, 0])
async def test_a_deletion_is_of_one_uid_alone(grace_s: int | None) -> None:
    server = Server()
    assert await deleted(writer(server), grace_s)
    ((verb, body),) = server.sent
    assert verb == "DELETE /api/v1/namespaces/ns/pods/chat-0-0"
    assert body["preconditions"] == {"uid": "uid-pod"} and body.get("gracePeriodSeconds") == grace_s


@pytest.mark.parametrize("status", [404, 409])
async def test_what_is_gone_or_replaced_by_a_namesake_needs_no_deletion(status: int) -> None:
    server = Server()
    server.error = KubeError(status, "Gone", "the UID in the precondition does not match")
    assert not await deleted(writer(server))


async def test_a_deletion_that_the_server_refuses_is_an_error() -> None:
    server = Server()
    server.error = KubeError(403, "Forbidden", "no")
    with pytest.raises(KubeError):
        await deleted(writer(server))


async def test_a_status_is_written_once_though_an_old_crd_drops_a_field_of_it() -> None:
    server, status = Server(), {"ready": "1/1", "reason": "Serving", "newest": 1, "absent": None}
    one, found = writer(server), resource()
    assert await one.status(found, status)
    ((verb, body),) = server.sent
    assert verb == "status" and body["status"] == {"ready": "1/1", "reason": "Serving", "newest": 1}
    found["status"] = {"ready": "1/1", "reason": "Serving"}
    assert not await one.status(found, status)
    assert await one.status(found, {**status, "newest": 2}), "another value may be kept"
    found["status"] = {"ready": "0/1", "reason": "Serving"}
    assert await one.status(found, {**status, "newest": 2}), "another client has changed it"


async def test_nothing_is_written_without_the_lease() -> None:
    server = Server()
    one = writer(server, leads=False)
    with pytest.raises(NotLeading):
        await one.apply(DESIRED, "uid-chat")
    with pytest.raises(NotLeading):
        await deleted(one)
    with pytest.raises(NotLeading):
        await one.status(resource(), {"ready": "1/1"})
    assert server.sent == []


@pytest.mark.parametrize("manager", ["autoscaler", ""])
async def test_a_field_that_is_changed_back_is_named_with_its_manager_and_put_off(manager: str) -> None:
    """Without a manager beside ours it is an admission webhook, whose value is in the answer already."""
    server, changed = Server(), live()
    fields = {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:type": {}}}}
    changed["metadata"]["managedFields"] = [fields] if manager else []
    server.cached = server.stored = changed
    server.rewrites = {} if manager else {"spec": changed["spec"]}
    one = writer(server)
    for _ in range(FREE + 1):
        assert one.turns.conflicts("uid-chat", time.monotonic()) == ()
        assert await one.apply(DESIRED, "uid-chat")
    with pytest.raises(Postponed) as put_off:
        await one.apply(DESIRED, "uid-chat")
    assert 1.0 < put_off.value.after_s <= FIRST_DELAY_S and len(server.sent) == FREE + 1
    (found,) = one.turns.conflicts("uid-chat", time.monotonic())
    assert found == FieldConflict("Service", "chat", "spec.type", manager, is_admission=not manager)


@pytest.mark.parametrize("how", ["deleted", "restored", "secret"])
async def test_what_was_put_off_and_needs_no_write_any_more_is_not_pending(how: str) -> None:
    desired = {**DESIRED, "kind": "Secret"} if how == "secret" else DESIRED
    server = Server()
    server.cached = server.stored = {**live(), "kind": desired["kind"]}
    one = writer(server)
    with pytest.raises(Postponed):
        for _ in range(FREE + 2):
            await one.apply(desired, "uid-chat")
    assert one.turns.pending_s("uid-chat", time.monotonic()) is not None
    if how == "secret":
        one.holds(server.stored, "uid-chat")
    else:
        gone = {**live()["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        server.cached = {**live(), "metadata": gone} if how == "deleted" else {**live(), "spec": DESIRED["spec"]}
        assert not await one.apply(desired, "uid-chat")
    assert one.turns.pending_s("uid-chat", time.monotonic()) is None


async def test_a_status_that_others_change_is_only_paced() -> None:
    server, found = Server(), resource()
    one, found["status"] = writer(server), {"ready": "0/1"}
    with pytest.raises(Postponed) as put_off:
        for _ in range(BURST + 1):
            await one.status(found, {"ready": "1/1"})
    assert put_off.value.after_s <= INTERVAL_S and len(server.sent) == BURST
    assert one.turns.pending_s("uid-chat", time.monotonic()) is None


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("is_own", [True, False])
async def test_a_revision_that_others_label_keeps_its_template_while_it_is_put_off(
    is_cached: bool, is_own: bool
) -> None:
    data = {"template": {"spec": {}}}
    metadata = {"namespace": "ns", "name": "chat-1", "ownerReferences": [OWNER], "labels": {"a": "b"}}
    desired = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": data, "revision": 1}
    fields = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {}} if is_own else {}}
    found = {**desired, "metadata": {**metadata, "uid": "uid-1", "labels": {"a": "c"}, "managedFields": [fields]}}
    server = Server()
    server.stored, server.cached = found, trim(found) if is_cached else None
    server.rewrites = {"metadata": found["metadata"]}
    one, put_off = writer(server), list[Postponed]()
    for _ in range(FREE + 2):
        try:
            await one.apply(desired, "uid-chat")
        except Postponed as error:
            put_off.append(error)
    assert put_off and {error.keeps_template for error in put_off} == {is_own}


async def test_an_object_that_changes_all_the_time_is_written_only_so_often() -> None:
    server = Server()
    one, sent = writer(server), 0
    with pytest.raises(Postponed):
        for number in range(100):
            await one.apply({**DESIRED, "spec": {"type": f"Type{number}"}}, "uid-chat")
            sent += 1
    assert sent == BURST and len(server.sent) == BURST
