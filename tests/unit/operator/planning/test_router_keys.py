"""API keys fail closed: conditions say what is wrong with them, and routers with other keys end within a bound."""

from dataclasses import replace
from typing import Any

import pytest
from support.cluster.services import condition, pod, resource, service

from octavo.operator.api.v1alpha1 import parse
from octavo.operator.cluster.trim import trim
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import RouterKeys, RouterReport, Snapshot
from octavo.operator.planning.plan import Plan, plan
from octavo.operator.planning.routers.keys import POLL_S, REPLACE_S
from octavo.shared.key_problem import KeyProblem

Json = dict[str, Any]  # Any: Kubernetes JSON
KEYS: Json = {"router": {"apiKeys": {"secretName": "clients", "key": "mine.txt"}}}
READY = [condition("PodScheduled", "True"), condition("Ready", "True")]
GOOD = RouterKeys(True)
MISSING = RouterKeys(False, KeyProblem.MISSING, "there is no such file")
SPOILT = RouterKeys(False, KeyProblem.UNUSABLE, "line 1 is not a key")
PARTLY = RouterKeys(True, KeyProblem.UNUSABLE, "line 2 is not a key")


def made(spec: Json, at: float = 0.0) -> tuple[Json, Json]:
    """The Deployment and the StatefulSet of a service, as its first plan has them."""
    found = {item.object["kind"]: dict(item.object) for item in plan(service(**spec), Snapshot(), Options(), at).apply}
    group = found["StatefulSet"]
    group["metadata"] = {**group["metadata"], "uid": "sts-uid"}
    return {**found["Deployment"], "status": {"readyReplicas": 1}}, group


def router(name: str, spec: Json, **more: Any) -> Json:
    """A ready router pod of this spec, as the operator's caches keep it."""
    found = pod(name, owner="rs", **{"phase": "Running", "conditions": READY, **more})
    template = made(spec)[0]["spec"]["template"]
    return trim(
        {**found, "kind": "Pod", "metadata": {**found["metadata"], **template["metadata"]}, "spec": template["spec"]}
    )


def seen(*routers: Json, reports: dict[str, RouterKeys] | None = None, deployed: Json = KEYS) -> Snapshot:
    """A service whose group serves, with these routers. deployed: the spec of the Deployment that is live."""
    deployment, group = made(deployed, at=1_000.0)
    leader = pod("chat-0-0", phase="Running", conditions=READY)
    known = {f"uid-{name}": RouterReport(keys=report) for name, report in (reports or {}).items()}
    return Snapshot(statefulsets=(group,), pods=(leader, *routers), router=deployment, routers=known)


def planned(snapshot: Snapshot, now: float = 1_000.0, **spec: Any) -> Plan:
    return plan(parse(resource(**spec)), snapshot, Options(), now)


def conditions(one: Plan) -> dict[str, Json]:
    assert one.status is not None
    return {entry["type"]: entry for entry in one.status["conditions"]}


def deployment(one: Plan) -> Json:
    return next(dict(item.object) for item in one.apply if item.object["kind"] == "Deployment")


@pytest.mark.parametrize(
    ("report", "reason", "words"),
    [
        (MISSING, "SecretMissing", "kubectl create secret generic clients --from-file=mine.txt=FILE"),
        (SPOILT, "KeysUnusable", "Secret clients, entry mine.txt: line 1 is not a key; every request is refused"),
    ],
)
def test_while_no_key_is_valid_the_service_is_not_ready_and_names_the_secret(
    report: RouterKeys, reason: str, words: str
) -> None:
    one = planned(seen(router("chat-router-x", KEYS), reports={"chat-router-x": report}), **KEYS)
    found = conditions(one)
    for kind, status in (("RouterReady", "False"), ("Ready", "False"), ("Degraded", "True"), ("Progressing", "False")):
        assert (found[kind]["status"], found[kind]["reason"]) == (status, reason)
        assert found[kind]["message"].startswith("chat-router-x: ") and words in found[kind]["message"]
    assert ("Warning", reason) in [(event.type, event.reason) for event in one.events]


def test_a_line_that_is_no_key_leaves_the_service_ready_and_degraded() -> None:
    found = conditions(planned(seen(router("chat-router-x", KEYS), reports={"chat-router-x": PARTLY}), **KEYS))
    assert found["Ready"]["status"] == "True"
    assert (found["RouterReady"]["status"], found["RouterReady"]["reason"]) == ("True", "KeysUnusable")
    assert (found["Degraded"]["status"], found["Degraded"]["reason"]) == ("True", "KeysUnusable")
    assert "line 2 is not a key; the keys of the other lines are valid" in found["Degraded"]["message"]
    assert found["Progressing"]["reason"] != "Complete"


def test_one_router_that_lacks_the_secret_beside_one_that_has_it_is_degraded() -> None:
    both = seen(
        router("chat-router-x", KEYS),
        router("chat-router-y", KEYS),
        reports={"chat-router-x": GOOD, "chat-router-y": MISSING},
    )
    found = conditions(planned(both, **KEYS))
    assert (found["Ready"]["status"], found["RouterReady"]["status"]) == ("True", "True")
    assert found["Degraded"]["message"].startswith("chat-router-y: there is no Secret clients")
    assert "1 of 2 routers refuse every request" in found["Degraded"]["message"]


def test_good_keys_are_looked_at_again_and_are_no_cause() -> None:
    one = planned(seen(router("chat-router-x", KEYS), reports={"chat-router-x": GOOD}), **KEYS)
    found = conditions(one)
    assert (found["Ready"]["status"], found["Degraded"]["status"]) == ("True", "False")
    assert found["Progressing"]["reason"] == "Complete"
    assert one.poll_after == POLL_S


OTHER: Json = {"router": {"apiKeys": {"secretName": "earlier", "key": "mine.txt"}}}


@pytest.mark.parametrize("before", [{}, OTHER], ids=["without keys", "with other keys"])
def test_routers_with_other_keys_are_replaced_and_after_a_minute_stopped(before: Json) -> None:
    old, new = router("chat-router-a", before), router("chat-router-b", KEYS, phase="Pending", conditions=[])
    begun = planned(seen(old, deployed=before), **KEYS)
    assert deployment(begun)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    found = conditions(begun)["Progressing"]
    assert (found["status"], found["reason"]) == ("True", "RollingOut")
    assert begun.changes_after is not None and begun.changes_after <= REPLACE_S + 0.2
    live = {**deployment(begun), "status": {"readyReplicas": 1}}

    def at(now: float, *routers: Json) -> Json:
        found = deployment(planned(Snapshot(pods=routers, router=live), now, **KEYS))
        assert found["metadata"]["annotations"] == live["metadata"]["annotations"]
        most = found["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"]
        assert isinstance(most, int | str)
        return most

    assert at(1_000.0 + REPLACE_S - 1, old, new) == 0
    assert at(1_000.0 + REPLACE_S, old, new) == "100%", "none of the new ones is ready, and the old ones must end"
    assert at(1_000.0 + REPLACE_S, new) == 0
    ended = {**old, "status": {"phase": "Failed"}}
    assert at(1_000.0 + REPLACE_S, ended, new) == 0


def test_keys_that_are_no_longer_needed_replace_routers_as_any_other_change() -> None:
    one = planned(seen(router("chat-router-a", KEYS), deployed=KEYS), 1_000.0 + 2 * REPLACE_S)
    assert deployment(one)["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert "octavo.dev/api-keys-since" not in deployment(one)["metadata"].get("annotations", {})


@pytest.mark.parametrize("kept", ["", "{}", "[]", '{"secret": "clients", "entry": "mine.txt", "since": "soon"}'])
def test_an_annotation_that_cannot_be_read_starts_the_minute_again(kept: str) -> None:
    live, _ = made(KEYS)
    live["metadata"] = {**live["metadata"], "annotations": {"octavo.dev/api-keys-since": kept}}
    late = Snapshot(pods=(router("chat-router-a", OTHER),), router=live)
    assert deployment(planned(late, 9_000.0, **KEYS))["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_a_first_start_is_not_degraded_any_more_once_the_secret_is_there() -> None:
    def starting(report: RouterKeys) -> Snapshot:
        found = seen(router("chat-router-x", KEYS), reports={"chat-router-x": report})
        leader = pod("chat-0-0", phase="Running", conditions=READY[:1])
        return replace(found, pods=(leader, *found.pods[1:]))

    first = planned(starting(MISSING), **KEYS)
    assert (conditions(first)["Degraded"]["status"], conditions(first)["Degraded"]["reason"]) == (
        "True",
        "SecretMissing",
    )
    then = plan(parse({**resource(**KEYS), "status": first.status}), starting(GOOD), Options(), 1_010.0)
    assert conditions(then)["Degraded"]["status"] == "False", "no group has served yet, and nothing fails"
