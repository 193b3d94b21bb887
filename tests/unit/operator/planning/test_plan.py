"""A plan is a function of what it is given: the same in, the same out, and objects that stay what they are."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.services import resource, service
from support.cluster.tiny_cluster import TinyCluster

from octavo.operator.api.v1alpha1 import SpecError, parse
from octavo.operator.groups.options import Options
from octavo.operator.groups.snapshot import Snapshot
from octavo.operator.planning.plan import Plan, plan
from octavo.operator.planning.unplanned import plan_invalid
from octavo.router.parsers.parser_flags import ParserFlags
from octavo.router.process.config import parse_arguments

Json = dict[str, Any]  # Any: Kubernetes JSON

SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 3),
        "paused": st.booleans(),
        "image": st.sampled_from(["a", "b"]),
        "engine": st.fixed_dictionaries(
            {}, optional={"prefixCaching": st.booleans(), "maxRequests": st.integers(1, 64)}
        ),
        "router": st.fixed_dictionaries({}, optional={"replicas": st.integers(0, 3), "processes": st.integers(1, 4)}),
        "model": st.sampled_from([{"uri": "pvc://c/p"}, {"uri": "bundled://x", "servedName": "y"}]),
        "resources": st.sampled_from([{}, {"limits": {"memory": "1Gi"}}]),
        "parallelism": st.fixed_dictionaries({"tensor": st.integers(1, 3), "pipeline": st.integers(1, 3)}),
    },
)


def fresh(**spec: Any) -> Plan:
    return plan(service(**spec), Snapshot(), Options(), 0.0)


def objects(planned: Plan) -> dict[tuple[str, str], Json]:
    return {(a.object["kind"], a.object["metadata"]["name"]): dict(a.object) for a in planned.apply}


def reasons(planned: Plan, kind: str) -> tuple[str, str]:
    assert planned.status is not None
    found = next(entry for entry in planned.status["conditions"] if entry["type"] == kind)
    return found["status"], found["reason"]


@settings(max_examples=100, deadline=None)
@given(SPECS)
def test_the_same_input_gives_the_same_plan(spec: Json) -> None:
    tiny = TinyCluster(resource(**spec))
    for _ in range(3):
        first, second = (plan(parse(tiny.resource), tiny.snapshot(), tiny.options, tiny.now) for _ in range(2))
        assert json.dumps(first.status) == json.dumps(second.status) and first == second
        tiny.reconcile()
        tiny.advance(lambda events: events[-1])


@settings(max_examples=100, deadline=None)
@given(SPECS, SPECS)
def test_selectors_and_names_stay_whatever_changes_in_the_spec(one: Json, other: Json) -> None:
    first, second = objects(fresh(**one)), objects(fresh(**other))
    for key in first.keys() & second.keys():
        assert _selector(first[key]) == _selector(second[key])
    named = [{key for key in made if key[0] not in ("StatefulSet", "ControllerRevision")} for made in (first, second)]
    assert named[0] == named[1]


def _selector(item: Json) -> object:
    spec = item.get("spec", {})
    return spec.get("selector") or spec.get("podSelector")


def test_selectors_match_the_pods_they_mean_and_no_others() -> None:
    made = objects(fresh())
    worker = made["StatefulSet", "chat-0"]["spec"]["template"]["metadata"]["labels"]
    router = made["Deployment", "chat-router"]["spec"]["template"]["metadata"]["labels"]
    first_pod = {**worker, "apps.kubernetes.io/pod-index": "0"}  # the StatefulSet controller's

    def selects(kind: str, name: str, pod: dict[str, str]) -> bool:
        found: Any = _selector(made[kind, name])
        return bool((found.get("matchLabels") or found).items() <= pod.items())

    for kind, name in [
        ("StatefulSet", "chat-0"),
        ("PodDisruptionBudget", "chat-workers"),
        ("NetworkPolicy", "chat-workers"),
    ]:
        assert selects(kind, name, worker) and not selects(kind, name, router)
    assert selects("Service", "chat-ranks", worker) and not selects("Service", "chat-leaders", worker)
    assert selects("Service", "chat-leaders", first_pod) and not selects("Service", "chat", first_pod)
    for kind, name in [("Deployment", "chat-router"), ("Service", "chat"), ("NetworkPolicy", "chat-router")]:
        assert selects(kind, name, router) and not selects(kind, name, worker)


def test_workers_are_named_before_they_are_ready_and_routers_see_only_workers_that_serve() -> None:
    made = objects(fresh())
    assert made["Service", "chat-ranks"]["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in made["Service", "chat-leaders"]["spec"]


def test_every_object_belongs_to_the_service_and_has_no_finalizer() -> None:
    for item in objects(fresh()).values():
        (owner,) = item["metadata"]["ownerReferences"]
        assert owner["uid"] == "uid-chat" and owner["controller"] is True
        assert item["metadata"]["namespace"] == "default" and "finalizers" not in item["metadata"]
        assert item["metadata"]["labels"]["octavo.dev/service"] == "chat"


def _templates(planned: Plan) -> Iterator[Json]:
    for item in objects(planned).values():
        if item["kind"] in ("StatefulSet", "Deployment"):
            yield item["spec"]["template"]["spec"]


@pytest.mark.parametrize("device", ["cpu", "nvidia.com/gpu"])
def test_pods_fit_the_restricted_security_level(device: str) -> None:
    templates = list(_templates(fresh(model={"uri": "pvc://claim/path"}, accelerator={"resource": device})))
    assert len(templates) == 2
    for pod in templates:
        assert (
            pod["securityContext"]["runAsNonRoot"]
            and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        )
        assert all("hostPath" not in volume for volume in pod["volumes"])
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_workers_hold_no_token_and_a_claim_is_mounted_read_only() -> None:
    pod = objects(fresh(model={"uri": "pvc://claim/a/b"}))["StatefulSet", "chat-0"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert "--model=pvc://claim/a/b" in container["args"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]
    assert {"name": "models", "persistentVolumeClaim": {"claimName": "claim", "readOnly": True}} in pod["volumes"]


def test_keys_are_mounted_into_routers_alone_and_not_read_by_the_operator() -> None:
    planned = fresh(router={"apiKeys": {"secretName": "clients", "key": "mine.txt"}})
    made = objects(planned)
    pod = made["Deployment", "chat-router"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "keys"]
    assert volume["secret"] == {
        "secretName": "clients", "defaultMode": 0o444, "items": [{"key": "mine.txt", "path": "keys"}], "optional": True
    }  # fmt: skip
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "keys"]
    assert mount["readOnly"] and "subPath" not in mount, "a file that is mounted alone is never changed"
    assert f"--api-keys-file={mount['mountPath']}/keys" in container["args"]
    others = [found for (_, name), found in made.items() if not name.startswith("chat-router")]
    assert "clients" not in json.dumps(others) and "clients" not in repr(planned.certificates)
    plain = json.dumps(objects(fresh())["Deployment", "chat-router"])
    assert "api-keys" not in plain and "/etc/octavo/api" not in plain


def test_fields_reach_the_flags_of_the_router() -> None:
    def arguments(**router: Any) -> list[str]:
        made = objects(fresh(router=router))["Deployment", "chat-router"]["spec"]["template"]["spec"]
        return list(made["containers"][0]["args"])

    asked = arguments(maxConnections=100, clientPriority=True, queue={"maxRequests": 7, "maxWait": "500ms"})
    config = parse_arguments([flag for flag in asked if not flag.startswith("--tls-dir")] + ["--tls-dir=/"])
    assert (config.settings.max_connections, config.settings.client_priority) == (100, True)
    assert (config.settings.queue_max_requests, config.settings.queue_max_wait_s) == (7, 0.5)
    assert arguments(policy="round-robin").count("--policy=round-robin") == 1
    assert "--client-priority" not in arguments() and "--max-connections=8192" in arguments()
    asked = arguments(
        strict=True, corsOrigins=["https://a.example", "http://b:81"], toolParser="hermes", reasoningParser="think"
    )
    config = parse_arguments([flag for flag in asked if not flag.startswith("--tls-dir")] + ["--tls-dir=/"])
    assert config.settings.strict and config.settings.cors_origins == ("https://a.example", "http://b:81")
    assert config.parsers == ParserFlags("hermes", "think")
    assert "--strict" not in arguments() and "--cors-origin" not in str(arguments())


def test_fields_reach_the_flags_of_the_worker() -> None:
    engine = {"maxBatchTokens": 256, "maxRequests": 8, "kvCacheMemory": "0.5Gi", "prefixCaching": False}
    engine |= {"tokenInterval": "50ms", "prepareSleep": True}
    made = objects(
        fresh(model={"uri": "bundled://x", "servedName": "n", "contextLength": 99}, engine=engine, image="mine")
    )
    (container,) = made["StatefulSet", "chat-0"]["spec"]["template"]["spec"]["containers"]
    desired = "--model=bundled://x --context-length=99 --max-batch-tokens=256 --max-requests=8"
    others = {"--token-interval=0.05", "--kv-cache-memory=536870912", "--no-prefix-caching", "--prepare-sleep"}
    assert {*desired.split(), *others} <= set(container["args"])
    assert container["image"] == "mine" and "--served-name" not in str(container["args"]), "routers alone use it"
    assert "--prepare-sleep" not in worker_container()["args"]
    (container,) = made["Deployment", "chat-router"]["spec"]["template"]["spec"]["containers"]
    assert "--served-name=n" in container["args"]


def worker_container(**spec: Any) -> Json:
    (container,) = objects(fresh(**spec))["StatefulSet", "chat-0"]["spec"]["template"]["spec"]["containers"]
    return dict(container)


def test_a_gpu_is_asked_for_beside_the_resources_of_the_spec() -> None:
    desired = {"requests": {"cpu": "4"}, "limits": {"memory": "64Gi"}}
    container = worker_container(accelerator={"resource": "nvidia.com/gpu"}, resources=desired)
    assert "--device=cuda" in container["args"]
    assert container["resources"] == {
        "requests": {"cpu": "4", "nvidia.com/gpu": "1"},
        "limits": {"memory": "64Gi", "nvidia.com/gpu": "1"},
    }
    bare = worker_container(accelerator={"resource": "nvidia.com/gpu"}, resources={})
    assert bare["resources"] == {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}


def group_flags(**spec: Any) -> list[str]:
    shape = ("--tensor", "--pipeline", "--ranks-per-pod", "--pod-index", "--peers", "--stage")
    return [argument for argument in worker_container(**spec)["args"] if argument.startswith(shape)]


def peers(pods: int) -> list[str]:
    names = ",".join(f"chat-$(GROUP)-{pod}.chat-ranks:8501" for pod in range(pods))
    return ["--pod-index=$(POD_INDEX)", f"--peers={names}"]


@pytest.mark.parametrize(
    ("tensor", "pipeline", "per_pod", "pods", "flags"),
    [
        (1, 1, None, 1, []),
        (3, 1, None, 1, ["--tensor=3"]),
        (1, 2, None, 2, ["--pipeline=2", *peers(2)]),
        (3, 2, None, 2, ["--tensor=3", "--pipeline=2", *peers(2)]),
        (3, 2, 3, 2, ["--tensor=3", "--pipeline=2", *peers(2)]),
        (3, 2, 1, 6, ["--tensor=3", "--pipeline=2", "--ranks-per-pod=1", *peers(6)]),
        (4, 1, 2, 2, ["--tensor=4", "--ranks-per-pod=2", *peers(2)]),
    ],
)
def test_a_group_has_the_pods_that_its_shape_needs_and_each_knows_the_others(
    tensor: int, pipeline: int, per_pod: int | None, pods: int, flags: list[str]
) -> None:
    desired = {"parallelism": {"tensor": tensor, "pipeline": pipeline}, "accelerator": {"perPod": per_pod}}
    made = objects(fresh(**desired))["StatefulSet", "chat-0"]["spec"]
    assert (made["replicas"], made["podManagementPolicy"], made["serviceName"]) == (pods, "Parallel", "chat-ranks")
    assert group_flags(**desired) == flags
    fields = {entry["name"]: entry.get("valueFrom") for entry in worker_container(**desired)["env"]}
    assert ("GROUP" in fields, "POD_INDEX" in fields) == (pods > 1, pods > 1)


def test_pods_of_a_group_want_to_be_near_each_other_and_no_others() -> None:
    two = objects(fresh(parallelism={"pipeline": 2}, replicas=2))
    for index in (0, 1):
        template = two["StatefulSet", f"chat-{index}"]["spec"]["template"]
        (terms,) = template["spec"]["affinity"]["podAffinity"].values()
        keys = [term["podAffinityTerm"]["topologyKey"] for term in terms]
        assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        for term in terms:
            wanted = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
            assert wanted["octavo.dev/group"] == str(index) and wanted.items() <= template["metadata"]["labels"].items()


def test_groups_prefer_nodes_without_other_groups_of_the_service() -> None:
    for pods in (1, 2):
        made = objects(fresh(parallelism={"pipeline": pods}, replicas=2))
        for index in (0, 1):
            affinity = made["StatefulSet", f"chat-{index}"]["spec"]["template"]["spec"]["affinity"]
            assert ("podAffinity" in affinity) == (pods > 1)
            ((kind, (term,)),) = affinity["podAntiAffinity"].items()
            assert kind == "preferredDuringSchedulingIgnoredDuringExecution", "one node must do"
            assert term["podAffinityTerm"] == {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {
                    "matchLabels": {"octavo.dev/service": "chat", "octavo.dev/component": "worker"},
                    "matchExpressions": [{"key": "octavo.dev/group", "operator": "NotIn", "values": [str(index)]}],
                },
            }


def test_groups_keep_the_pods_of_their_own_revision() -> None:
    tiny = TinyCluster(resource(parallelism={"tensor": 3, "pipeline": 2}, accelerator={"perPod": 1}))
    tiny.settle()
    tiny.edit(parallelism={"tensor": 1, "pipeline": 2}, accelerator={})
    planned = objects(tiny.reconcile())
    replicas = [planned["StatefulSet", name]["spec"]["replicas"] for name in ("chat-0", "chat-1")]
    assert replicas == [6, 2] and tiny.serving() == 1
    tiny.settle()
    assert tiny.serving() == 1 and sorted(tiny.pods) == ["chat-1-0", "chat-1-1"]


def test_a_group_serves_when_all_its_pods_do() -> None:
    tiny = TinyCluster(resource(parallelism={"pipeline": 3}))
    tiny.settle()
    assert reasons(tiny.reconcile(), "Ready") == ("True", "Serving")
    tiny.delete_pod("chat-0-2")
    planned = tiny.reconcile()
    assert reasons(planned, "Ready")[0] == "False" and reasons(planned, "Degraded") == (
        "True",
        "MinimumReplicasUnavailable",
    )


def test_a_service_that_only_begins_is_not_degraded() -> None:
    tiny = TinyCluster(resource(replicas=2))
    while tiny.serving() == 0:
        assert reasons(tiny.reconcile(), "Degraded") == ("False", "Healthy")
        tiny.advance(lambda events: events[0])
    tiny.settle()
    tiny.edit(paused=True)
    tiny.settle()
    tiny.edit(paused=False)
    for _ in range(3):
        assert reasons(tiny.reconcile(), "Degraded") == ("False", "Healthy")


def test_groups_that_start_for_the_first_time_are_no_loss_and_cause_no_warning() -> None:
    tiny = TinyCluster(resource(replicas=3))
    for replicas in (3, 5):
        tiny.edit(replicas=replicas)
        while tiny.serving() < replicas:
            tiny.advance(lambda events: events[0])
            planned = tiny.reconcile()
            assert reasons(planned, "Degraded") == ("False", "Healthy")
            assert "Warning" not in {event.type for event in planned.events}


def test_a_group_that_served_and_is_lost_degrades_a_service_that_still_starts() -> None:
    tiny = TinyCluster(resource(replicas=3))
    tiny.reconcile()
    while tiny.serving() < 1:
        tiny.advance(lambda events: events[0])
    tiny.reconcile()
    tiny.delete_pod("chat-0-0")
    assert reasons(tiny.reconcile(), "Degraded") == ("True", "MinimumReplicasUnavailable")
    tiny.settle()
    assert reasons(tiny.reconcile(), "Degraded") == ("False", "Healthy")


def test_a_rollout_that_keeps_all_groups_serving_is_not_degraded() -> None:
    tiny = TinyCluster(resource(replicas=2, image="a"))
    tiny.settle()
    tiny.edit(image="b")
    for _ in range(40):
        assert reasons(tiny.reconcile(), "Degraded") == ("False", "Healthy")
        tiny.advance(lambda events: events[0])
    assert reasons(tiny.reconcile(), "Progressing") == ("False", "Complete")


def test_a_service_that_lost_all_its_groups_stays_degraded_whatever_is_edited_beside_them() -> None:
    tiny = TinyCluster(resource(replicas=2))
    tiny.settle()
    for name in ("chat-0-0", "chat-1-0"):
        tiny.delete_pod(name)
    assert reasons(tiny.reconcile(), "Degraded") == ("True", "MinimumReplicasUnavailable")
    tiny.edit(replicas=3)
    assert reasons(tiny.reconcile(), "Degraded") == ("True", "MinimumReplicasUnavailable")


def test_fewer_groups_than_desired_are_degraded_until_all_serve_again() -> None:
    tiny = TinyCluster(resource(replicas=2))
    tiny.settle()
    assert reasons(tiny.reconcile(), "Degraded") == ("False", "Healthy")
    tiny.delete_pod("chat-1-0")
    for event in ("remove chat-1-0", "make chat-1-0", "serve chat-1-0"):
        assert reasons(tiny.reconcile(), "Degraded") == ("True", "MinimumReplicasUnavailable")
        tiny.advance(lambda events, event=event: event)
    planned = tiny.reconcile()
    assert reasons(planned, "Degraded") == ("False", "Healthy")
    assert "Recovered" in [event.reason for event in planned.events]


def test_on_cpus_no_device_is_asked_for() -> None:
    container = worker_container()
    assert "--device=cpu" in container["args"]
    assert container["resources"] == {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}}
    assert "resources" not in worker_container(resources={})


def test_a_foreign_object_is_left_alone_and_the_status_says_so() -> None:
    snapshot = Snapshot(foreign=frozenset({("Service", "chat")}))
    planned = plan(service(), snapshot, Options(), 0.0)
    assert ("Service", "chat") not in objects(planned) and ("Service", "chat-ranks") in objects(planned)
    assert reasons(planned, "Ready") == ("False", "NameConflict") and reasons(planned, "Degraded") == (
        "True",
        "NameConflict",
    )


def test_a_foreign_statefulset_costs_only_its_index() -> None:
    snapshot = Snapshot(foreign=frozenset({("StatefulSet", "chat-0")}))
    planned = plan(service(), snapshot, Options(), 0.0)
    assert ("StatefulSet", "chat-1") in objects(planned) and ("StatefulSet", "chat-0") not in objects(planned)


def test_a_host_folder_needs_the_operators_leave() -> None:
    planned = fresh(model={"uri": "file:///data/model"})
    assert reasons(planned, "Ready") == ("False", "HostPathNotAllowed")
    assert not any(kind == "StatefulSet" for kind, _ in objects(planned))
    desired = service(model={"uri": "file:///data/my%20model"})
    allowed = plan(desired, Snapshot(), Options(host_path_allow=("/srv", "/data")), 0.0)
    pod = objects(allowed)["StatefulSet", "chat-0"]["spec"]["template"]["spec"]
    assert {"name": "models", "hostPath": {"path": "/data/my model", "type": "Directory"}} in pod["volumes"]


def test_certificates_name_the_role_and_the_service() -> None:
    desired = fresh().certificates
    assert desired is not None
    assert [(leaf.secret, leaf.dns_name) for leaf in desired.leaves] == [
        ("chat-worker-tls", "worker.uid-chat.octavo"),
        ("chat-router-tls", "router.uid-chat.octavo"),
    ]


def test_a_resource_that_cannot_be_read_says_so_and_nothing_is_touched() -> None:
    broken = resource(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}})
    with pytest.raises(SpecError) as caught:
        parse(broken)
    planned = plan_invalid(broken, caught.value, Snapshot(), 5.0)
    assert reasons(planned, "Degraded") == ("True", "InvalidSpec") and not planned.apply and not planned.delete
    again = plan_invalid({**broken, "status": planned.status}, caught.value, Snapshot(), 50.0)
    assert again.status == planned.status and again.events == ()


def test_every_step_of_a_plan_has_its_reason() -> None:
    tiny = TinyCluster(resource(image="a"))
    tiny.settle()
    tiny.edit(image="b")
    planned = tiny.reconcile()
    (new,) = [item.reason for item in planned.apply if item.object["metadata"]["name"] == "chat-1"]
    assert new.startswith("1 group of revision")
    assert all(item.reason for item in (*planned.apply, *planned.delete, *planned.delete_pods))


def test_a_settled_service_plans_only_what_is_already_there() -> None:
    tiny = TinyCluster(resource(replicas=2))
    tiny.settle()
    first, second = tiny.reconcile(), tiny.reconcile()
    assert first.apply == second.apply and first.status == second.status
    assert second.events == () and second.requeue_after is None
    assert {key for key in objects(second) if key[0] == "StatefulSet"} == {
        ("StatefulSet", "chat-0"),
        ("StatefulSet", "chat-1"),
    }


def test_a_statefulset_made_by_an_older_release_keeps_its_fixed_fields() -> None:
    tiny = TinyCluster(resource())
    tiny.settle()
    tiny.sets["chat-0"]["spec"]["podManagementPolicy"] = "OrderedReady"
    made = objects(tiny.reconcile())
    assert made["StatefulSet", "chat-0"]["spec"]["podManagementPolicy"] == "OrderedReady"


def test_pods_leave_a_lost_node_within_seconds_and_routers_stand_apart() -> None:
    made = objects(fresh(router={"replicas": 2}))
    router, worker = (
        made[kind]["spec"]["template"]["spec"] for kind in (("Deployment", "chat-router"), ("StatefulSet", "chat-0"))
    )
    for pod in (router, worker):
        stays = {entry["key"]: entry["tolerationSeconds"] for entry in pod["tolerations"]}
        assert stays == {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 10}
    (apart,) = router["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = made["Deployment", "chat-router"]["spec"]["selector"]["matchLabels"]
    assert apart["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": labels},
    }


def test_a_new_restart_at_changes_the_pods_of_workers_and_of_routers() -> None:
    def template(kind: str, name: str, **spec: Any) -> Any:
        return objects(fresh(**spec))[(kind, name)]["spec"]["template"]

    for kind, name in (("StatefulSet", "chat-0"), ("Deployment", "chat-router")):
        assert template(kind, name) == template(kind, name)
        assert template(kind, name, restartAt="one") != template(kind, name, restartAt="two")
