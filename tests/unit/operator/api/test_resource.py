"""The resource as files and the API server give it: defaults, and errors that name the field."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster import spec_cases
from support.cluster.services import resource, service

from octavo.operator.api import crd
from octavo.operator.api.rules import OWN_SECRETS, RULES
from octavo.operator.api.schema import crd_schema
from octavo.operator.api.v1alpha1 import KIND, SpecError, parse
from octavo.operator.groups.names import secrets

ROOT = Path(__file__).parents[4]
URI = "bundled://smollm2-135m-instruct"
GPU = {"accelerator": {"resource": "nvidia.com/gpu"}}
IP_BLOCK = {"ipBlock": {"cidr": "10.0.0.0/8"}}


def test_the_chart_ships_the_crd_that_the_code_prints() -> None:
    assert (ROOT / "charts/octavo/files/crds/inferenceservices.yaml").read_text() == crd.text()


def test_every_field_has_a_description_and_a_bound() -> None:
    missing = list(_unbounded(crd_schema()["properties"]["spec"], "spec"))
    assert missing == []


def _unbounded(schema: dict[str, Any], path: str) -> Any:
    if "description" not in schema:
        yield f"{path} has no description"
    kind = schema.get("type")
    if kind == "string" and "maxLength" not in schema:
        yield f"{path} has no bound"
    if kind == "integer" and not ("minimum" in schema and "maximum" in schema):
        yield f"{path} has no bound"
    if kind == "array" and "maxItems" not in schema:
        yield f"{path} has no bound"
    for name, field in schema.get("properties", {}).items():
        yield from _unbounded(field, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from _unbounded(schema[inner], f"{path}[]")


EXAMPLES = [
    pytest.param(document, id=f"{path.name}-{number}")
    for path in sorted((ROOT / "examples").glob("*.yaml"))
    for number, document in enumerate(yaml.safe_load_all(path.read_text()))
    if document["kind"] == KIND
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_valid(example: dict[str, Any]) -> None:
    assert parse(example).name == example["metadata"]["name"]


def test_every_file_of_examples_has_a_service() -> None:
    files = {path.name for path in (ROOT / "examples").glob("*.yaml")}
    assert {str(example.id).rpartition("-")[0] for example in EXAMPLES} == files and len(files) > 3


def test_defaults_are_filled_in_all_the_way_down() -> None:
    spec = service().spec
    assert spec.replicas == 1 and spec.model.served_name == "chat" and spec.model.dtype == "auto"
    assert (spec.rollout.max_surge, spec.rollout.max_unavailable) == (1, 0)
    assert spec.router.settings.queue_max_wait_s == 60.0 and spec.router.service.port == 80
    assert spec.engine.prefix_caching and spec.engine.kv_cache_memory is None
    assert spec.resources["limits"] == {"memory": "3Gi"}
    assert (spec.parallelism.tensor, spec.parallelism.pipeline, spec.accelerator.per_pod, spec.pods) == (1, 1, 1, 1)


def test_durations_are_read_as_seconds_and_never_as_infinity() -> None:
    plain = service().spec
    assert (plain.disruption.grace_s, plain.disruption.not_ready_s, plain.disruption.node_lost_s) == (120, 300, 10)
    assert plain.scheduling.backoff_after_s is None
    given = service(
        disruption={"gracePeriod": "2h", "nodeLostAfter": "5m"}, scheduling={"gangBackoffAfter": "never"}
    ).spec
    assert (given.disruption.grace_s, given.disruption.node_lost_s) == (7200, 300)
    assert given.scheduling.backoff_after_s == math.inf
    assert service(scheduling={"gangBackoffAfter": "24h"}).spec.scheduling.backoff_after_s == 86_400


@pytest.mark.parametrize(
    "router",
    [
        {"service": {"type": "LoadBalancer", "insecure": True}},
        {"service": {"type": "LoadBalancer"}, "apiKeys": {"secretName": "clients"}},
        {"service": {"type": "NodePort", "externalTrafficPolicy": "Local"}},
    ],
)
def test_a_service_for_the_outside_is_accepted_with_keys_or_if_it_is_said_to_be_open(router: dict[str, Any]) -> None:
    assert parse(resource(router=router)).spec.router.service.type == router["service"]["type"]


def test_a_pod_holds_a_whole_stage_unless_set_otherwise() -> None:
    shape = {"tensor": 3, "pipeline": 2}
    assert (service(parallelism=shape).spec.accelerator.per_pod, service(parallelism=shape).spec.pods) == (3, 2)
    assert service(parallelism=shape, accelerator={"perPod": 1}).spec.pods == 6


@pytest.mark.parametrize(
    "spec",
    [
        {"engine": {"maxBatchTokens": 64}},
        {"engine": {"maxRequests": 512}},
        {"engine": {"maxBatchTokens": 63}},
        {"engine": {"maxBatchTokens": 255}, **GPU},
        {"engine": {"maxBatchTokens": 127}, "parallelism": {"pipeline": 2}, **GPU},
        {"engine": {"tokenInterval": "1ms"}},
        {"engine": {"tokenInterval": "1m"}},
        {"engine": {"maxRequests": 1000}, **GPU},
        {"engine": {"maxRequests": 1024}, "parallelism": {"pipeline": 2}},
        {"engine": {"maxRequests": 128, "maxBatchTokens": 64}, "parallelism": {"pipeline": 2}},
        {"engine": {"maxRequests": 4096}, "parallelism": {"pipeline": 8}, **GPU},
        {"model": {"uri": URI, "dtype": "bfloat16"}, **GPU},
        {"model": {"uri": URI, "dtype": "float32"}},
        {"resources": {"limits": {"memory": "32Gi"}}, **GPU},
        {"parallelism": {"tensor": 8, "pipeline": 8}},
        {"parallelism": {"tensor": 4}, "accelerator": {"perPod": 2}},
        {"parallelism": {"tensor": 4, "pipeline": 2}, **GPU},
        {"parallelism": {"tensor": 2, "pipeline": 1}, "accelerator": {"resource": "nvidia.com/gpu", "perPod": 2}},
    ],
)
def test_what_a_device_can_do_is_accepted_for_it(spec: dict[str, Any]) -> None:
    assert parse(resource(**spec)).spec.replicas == 1


def test_resources_default_to_the_devices_and_gpus_may_not_be_named() -> None:
    assert service(**GPU).spec.resources["limits"] == {"memory": "16Gi"}
    assert service(resources={}, **GPU).spec.resources == {}


def test_a_part_that_is_given_keeps_the_defaults_of_the_rest() -> None:
    spec = service(router={"queue": {"maxWait": "500ms"}}, rollout={"maxSurge": 2}).spec
    assert spec.router.settings.queue_max_wait_s == 0.5 and spec.router.settings.queue_max_requests == 1000
    assert spec.router.replicas == 1 and spec.rollout.max_unavailable == 0
    assert (spec.rollout.progress_deadline_s, spec.rollout.on_failure) == (1800.0, "pause")


def test_durations_may_be_hours() -> None:
    spec = service(router={"queue": {"maxWait": "1h"}}, rollout={"progressDeadline": "2h"}).spec
    assert (spec.router.settings.queue_max_wait_s, spec.rollout.progress_deadline_s) == (3600.0, 7200.0)


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("spec.replicas", {"replicas": -1}),
        ("spec.replicas", {"replicas": 1000}),
        ("spec.replicas", {"replicas": "2"}),
        ("spec.replicas", {"replicas": True}),
        ("spec.replicas", {"replicas": 1.5}),
        ("spec.replcas", {"replcas": 2}),
        ("spec.model", {"model": "x"}),
        ("spec.model.uri", {"model": {}}),
        ("spec.model.uri", {"model": {"uri": "hf://x/y"}}),
        ("spec.model.uri", {"model": {"uri": "pvc://claim/../other"}}),
        ("spec.model.uri", {"model": {"uri": "file:///a/.."}}),
        ("spec.model.uri", {"model": {"uri": "file:///a b"}}),
        ("spec.model.uri", {"model": {"uri": "file:///a/%2E%2E/b"}}),
        ("spec.model.uri", {"model": {"uri": "pvc://claim/a%2f..%2fb"}}),
        ("spec.model.uri", {"model": {"uri": "file:///a%00"}}),
        ("spec.model.uri", {"model": {"uri": "file://relative"}}),
        ("spec.model.uri", {"model": {"uri": "pvc://Claim"}}),
        ("spec.model.servedName", {"model": {"uri": URI, "servedName": "a b"}}),
        ("spec.model.dtype", {"model": {"uri": URI, "dtype": "int3"}}),
        ("spec.model.contextLength", {"model": {"uri": URI, "contextLength": 1}}),
        ("spec.rollout", {"rollout": {"maxSurge": 0, "maxUnavailable": 0}}),
        ("spec.rollout.progressDeadline", {"rollout": {"progressDeadline": "0s"}}),
        ("spec.rollout.progressDeadline", {"rollout": {"progressDeadline": "169h"}}),
        ("spec.rollout.onFailure", {"rollout": {"onFailure": "undo"}}),
        ("spec.engine", {"engine": {"maxRequests": 1000}}),
        ("spec.engine", {"engine": {"maxRequests": 129, "maxBatchTokens": 128}, **GPU}),
        ("spec.engine", {"engine": {"maxRequests": 1025}, "parallelism": {"pipeline": 2}}),
        ("spec.model.dtype", {"model": {"uri": URI, "dtype": "bfloat16"}}),
        ("spec.resources", {"resources": {"limits": {"nvidia.com/gpu": 1}}}),
        ("spec.resources", {"resources": {"requests": {"nvidia.com/gpu": "2"}}, **GPU}),
        ("spec.engine.tokenInterval", {"engine": {"tokenInterval": 50}}),
        ("spec.engine.tokenInterval", {"engine": {"tokenInterval": "0.05s"}}),
        ("spec.engine.tokenInterval", {"engine": {"tokenInterval": "0ms"}}),
        ("spec.engine.tokenInterval", {"engine": {"tokenInterval": "60001ms"}}),
        ("spec.engine.kvCacheMemory", {"engine": {"kvCacheMemory": "lots"}}),
        ("spec.engine.kvCacheMemory", {"engine": {"kvCacheMemory": "1Mi"}}),
        ("spec.resources", {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}),
        ("spec.resources.limits[memory]", {"resources": {"limits": {"memory": "x"}}}),
        ("spec.router.resources", {"router": {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1"}}}}),
        ("spec.router.queue.maxWait", {"router": {"queue": {"maxWait": "soon"}}}),
        ("spec.router.queue.maxWait", {"router": {"queue": {"maxWait": "1441m"}}}),
        ("spec.router.service.port", {"router": {"service": {"port": 70000}}}),
        ("spec.router.maxConnections", {"router": {"maxConnections": 0}}),
        ("spec.router.maxConnections", {"router": {"maxConnections": 1_000_001}}),
        ("spec.router.clientPriority", {"router": {"clientPriority": "yes"}}),
        ("spec.router.strict", {"router": {"strict": "yes"}}),
        ("spec.router.corsOrigins", {"router": {"corsOrigins": "*"}}),
        ("spec.router.corsOrigins", {"router": {"corsOrigins": ["*"] * 65}}),
        ("spec.router.corsOrigins[1]", {"router": {"corsOrigins": ["*", "https://a.example/"]}}),
        ("spec.router.toolParser", {"router": {"toolParser": "grok"}}),
        ("spec.router.reasoningParser", {"router": {"reasoningParser": "deepseek_r1"}}),
        ("spec.router.service.grpcPort", {"router": {"service": {"port": 8033}}}),
        ("spec.router.service.type", {"router": {"service": {"type": "LoadBalancer"}}}),
        ("spec.router.service.type", {"router": {"service": {"type": "LoadBalancer", "insecure": False}}}),
        ("spec.router.service", {"router": {"service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}}),
        ("spec.router.service", {"router": {"service": {"type": "NodePort", "loadBalancerClass": "a.example/b"}}}),
        ("spec.router.service.externalTrafficPolicy", {"router": {"service": {"externalTrafficPolicy": "Local"}}}),
        ("spec.disruption.gracePeriod", {"disruption": {"gracePeriod": "0s"}}),
        ("spec.disruption.gracePeriod", {"disruption": {"gracePeriod": "500ms"}}),
        ("spec.disruption.gracePeriod", {"disruption": {"gracePeriod": "25h"}}),
        ("spec.disruption.notReadyAfter", {"disruption": {"notReadyAfter": "never"}}),
        ("spec.disruption.nodeLostAfter", {"disruption": {"nodeLostAfter": "1441m"}}),
        ("spec.scheduling.gangBackoffAfter", {"scheduling": {"gangBackoffAfter": "always"}}),
        ("spec.scheduling.gangBackoffAfter", {"scheduling": {"gangBackoffAfter": "25h"}}),
        ("spec.networkPolicy.mode", {"networkPolicy": {"mode": "some"}}),
        ("spec.networkPolicy.clients", {"networkPolicy": {"clients": [{}]}}),
        ("spec.networkPolicy.metrics", {"networkPolicy": {"metrics": [{"podSelector": {}, **IP_BLOCK}]}}),
        ("spec.networkPolicy.clients[0].ipBlock.cidr", {"networkPolicy": {"clients": [{"ipBlock": {"cidr": "ten"}}]}}),
        ("spec.router.service.grpcPort", {"router": {"service": {"port": 90, "grpcPort": 90}}}),
        ("spec.router.apiKeys.secretName", {"router": {"apiKeys": {}}}),
        ("spec.router.apiKeys.secretName", {"router": {"apiKeys": {"secretName": "Two Words"}}}),
        ("spec.router.apiKeys.secretName", {"router": {"apiKeys": {"secretName": "chat-ca"}}}),
        ("spec.router.apiKeys.key", {"router": {"apiKeys": {"secretName": "clients", "key": "a/b"}}}),
        ("spec.accelerator.resource", {"accelerator": {"resource": "abacus"}}),
        ("spec.accelerator.tolerations[0].operator", {"accelerator": {"tolerations": [{"operator": "Maybe"}]}}),
        ("spec.image", {"image": "two words"}),
        ("spec.parallelism.tensor", {"parallelism": {"tensor": 0}}),
        ("spec.parallelism.pipeline", {"parallelism": {"pipeline": 65}}),
        ("spec.parallelism.stages", {"parallelism": {"stages": 2}}),
        ("spec.parallelism", {"parallelism": {"tensor": 8, "pipeline": 9}}),
        ("spec.accelerator.perPod", {"parallelism": {"tensor": 4}, "accelerator": {**GPU["accelerator"], "perPod": 2}}),
        ("spec.accelerator.perPod", {"accelerator": {"perPod": 0}}),
        ("spec.accelerator.perPod", {"accelerator": {"perPod": 2}}),
        ("spec.accelerator.perPod", {"parallelism": {"tensor": 3}, "accelerator": {"perPod": 2}}),
        ("spec.accelerator.perPod", {"parallelism": {"tensor": 2}, "accelerator": {"perPod": 4}}),
    ],
)
def test_a_wrong_field_is_named(field: str, spec: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        parse(resource(**spec))
    assert caught.value.field == field
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize("what", spec_cases.GOOD)
def test_a_spec_within_the_rules_is_accepted(what: str) -> None:
    assert parse(resource(**spec_cases.GOOD[what])).name == "chat"


@pytest.mark.parametrize("what", spec_cases.BAD)
def test_a_spec_against_a_rule_is_refused_by_that_rule(what: str) -> None:
    begin, spec = spec_cases.BAD[what]
    assert spec_cases.rule(begin) in spec_cases.broken(spec)
    with pytest.raises(SpecError) as caught:
        parse(resource(**spec))
    assert (caught.value.field, caught.value.message) in {
        (rule.field, rule.message) for rule in spec_cases.broken(spec)
    }


@pytest.mark.parametrize("name", ["a", "a" * 40, "a-1", "ranks", "router-x"])
def test_a_good_name_is_accepted(name: str) -> None:
    assert parse(resource(name)).name == name


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "a-", "a.b", "a_b", "a" * 41, "a" * 200, "x-ranks", "x-leaders", "x-router"]
)
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=r"metadata\.name"):
        parse(resource(name))


def test_another_kind_is_refused() -> None:
    with pytest.raises(SpecError, match=r"expected octavo\.dev/v1alpha1 InferenceService, found v1/Pod"):
        parse({"apiVersion": "v1", "kind": "Pod"})


def test_the_secrets_that_may_hold_no_keys_are_all_of_ours() -> None:
    assert tuple(name.removeprefix("chat") for name in secrets("chat")) == OWN_SECRETS


def test_every_rule_stands_in_the_schema() -> None:
    assert crd.text().count("rule:") == len(RULES)


def test_a_description_states_the_default() -> None:
    """`kubectl explain` shows descriptions alone."""

    def unstated(schema: dict[str, Any], path: str) -> list[str]:
        found = []
        for name, field in schema.get("properties", {}).items():
            if "default" in field and not isinstance(field["default"], dict | list):
                shown = str(field["default"]).lower() if isinstance(field["default"], bool) else field["default"]
                found += [] if f"Default: {shown}." in field["description"] else [f"{path}.{name}"]
            found += unstated(field, f"{path}.{name}")
        return found

    assert unstated(crd_schema()["properties"]["spec"], "spec") == []


@pytest.mark.parametrize("wait", ["5 minutes", "60", "s", "-1s", "1d", "1.5s", ""])
def test_a_wait_that_is_no_duration_is_refused_with_what_to_write(wait: str) -> None:
    with pytest.raises(SpecError, match=r"maxWait must be a whole number and a unit, such as 500ms, 60s, 2m or 1h"):
        service(router={"queue": {"maxWait": wait}})
