"""A revision changes exactly when the user changes what shapes pods."""

from dataclasses import replace
from typing import Any

import pytest
from support.cluster.services import service

from octavo.operator.groups.revision import router_revision, worker_revision

URI = "bundled://smollm2-135m-instruct"


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 3},
        {"paused": True},
        {"rollout": {"maxSurge": 2}},
        {"router": {"replicas": 2, "processes": 2}},
        {"engine": {"prefixCaching": True}},
        {"accelerator": {"resource": "cpu", "nodeSelector": {}}},
        {"model": {"uri": URI, "dtype": "auto"}},
        {"parallelism": {"tensor": 1}},
        {"accelerator": {"perPod": 1}},
        {"accelerator": {"perPod": None}},
        {"model": {"uri": URI, "servedName": "chat"}},
        {"disruption": {"gracePeriod": "2m", "notReadyAfter": "300s"}},
        {"scheduling": {"gangBackoffAfter": "never"}},
        {"networkPolicy": {"mode": "none"}},
        {"model": {"uri": URI, "servedName": "another-name"}},
        {"rollout": {"progressDeadline": "2h", "onFailure": "rollback", "historyLimit": 0}},
        {"resources": {"requests": {"cpu": "0.25", "memory": "1024Mi"}, "limits": {"memory": "3072Mi"}}},
    ],
)
def test_what_shapes_no_worker_or_is_the_default_in_other_words_rolls_no_worker(spec: dict[str, Any]) -> None:
    assert worker_revision(service(**spec)) == worker_revision(service())


@pytest.mark.parametrize(
    "spec",
    [
        {"image": "other"},
        {"restartAt": "now"},
        {"model": {"uri": URI, "contextLength": 99}},
        {"engine": {"prefixCaching": False}},
        {"engine": {"kvCacheMemory": "64Mi"}},
        {"resources": {"limits": {"memory": "4Gi"}}},
        {"resources": {}},
        {"accelerator": {"nodeSelector": {"a": "b"}}},
        {"accelerator": {"resource": "nvidia.com/gpu"}},
        {"accelerator": {"tolerations": [{"operator": "Exists"}]}},
        {"parallelism": {"tensor": 2}},
        {"parallelism": {"pipeline": 2}},
        {"disruption": {"gracePeriod": "10m"}},
        {"disruption": {"notReadyAfter": "10s"}},
        {"disruption": {"nodeLostAfter": "5m"}},
    ],
)
def test_what_shapes_workers_is_another_revision(spec: dict[str, Any]) -> None:
    assert worker_revision(service(**spec)) != worker_revision(service())


def test_how_a_stage_lies_in_pods_is_of_the_revision() -> None:
    whole = worker_revision(service(parallelism={"tensor": 3}))
    assert worker_revision(service(parallelism={"tensor": 3}, accelerator={"perPod": 3})) == whole
    assert worker_revision(service(parallelism={"tensor": 3}, accelerator={"perPod": 1})) != whole


def test_an_operator_that_knows_more_fields_rolls_no_service_that_does_not_use_them() -> None:
    assert worker_revision(service()) == "2754308b4f"
    assert worker_revision(service(accelerator={"resource": "nvidia.com/gpu"})) == "abfb7556da"
    assert router_revision(service()) == "6a495611bd"


def test_the_default_resources_are_the_devices() -> None:
    gpu = {"accelerator": {"resource": "nvidia.com/gpu"}}
    desired = {"requests": {"cpu": "2000m", "memory": "8192Mi"}, "limits": {"memory": "16Gi"}}
    assert worker_revision(service(resources=desired, **gpu)) == worker_revision(service(**gpu))
    of_cpus = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}}
    assert worker_revision(service(resources=of_cpus, **gpu)) != worker_revision(service(**gpu))


def test_routers_have_a_revision_of_their_own() -> None:
    plain = router_revision(service())
    assert router_revision(service(image="other", replicas=2, router={"replicas": 2})) == plain
    assert router_revision(service(router={"service": {"port": 8080, "grpcPort": 9000}})) == plain
    assert router_revision(service(router={"processes": 2})) != plain
    assert router_revision(service(router={"queue": {"maxWait": "5s"}})) != plain
    assert router_revision(service(restartAt="now")) != plain
    assert router_revision(service(disruption={"gracePeriod": "10m"})) != plain
    assert router_revision(service(disruption={"gracePeriod": "2m"}, networkPolicy={"mode": "none"})) == plain
    keys = router_revision(service(router={"apiKeys": {"secretName": "one"}}))
    assert keys != plain and keys != router_revision(service(router={"apiKeys": {"secretName": "two"}}))
    assert keys == router_revision(service(router={"apiKeys": {"secretName": "one", "key": "keys"}}))
    defaults = {"maxConnections": 8192, "clientPriority": False, "strict": False, "corsOrigins": []}
    defaults |= {"toolParser": "auto", "reasoningParser": "auto", "policy": "prefix-affinity"}
    others = (100, True, True, ["*"], "none", "none", "round-robin")
    for (field, default), value in zip(defaults.items(), others, strict=True):
        assert (
            router_revision(service(router={field: default}))
            == plain
            != router_revision(service(router={field: value}))
        )


@pytest.mark.parametrize("field", sorted(service().raw["router"].keys() - {"replicas", "service"}))
def test_every_setting_of_the_routers_is_of_their_revision(field: str) -> None:
    changed = service()
    raw = {**changed.raw, "router": {**changed.raw["router"], field: "another value"}}
    assert router_revision(replace(changed, raw=raw)) != router_revision(changed)


def test_a_field_that_the_revision_does_not_know_rolls_the_routers() -> None:
    changed = service()
    raw = {**changed.raw, "router": {**changed.raw["router"], "newSetting": 7}}
    assert router_revision(replace(changed, raw=raw)) != router_revision(changed)
