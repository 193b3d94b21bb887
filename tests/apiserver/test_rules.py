"""What the API server itself refuses, without any operator: every rule, bound and name."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster import pod_fields
from support.cluster.api_client import ApiError
from support.cluster.bed import Bed
from support.cluster.operators import service
from support.cluster.pod_fields import BAD, as_pod, of_routers

from octavo.operator.api.schema import RULES

MODEL = "bundled://smollm2-135m-instruct"
GPU = {"accelerator": {"resource": "nvidia.com/gpu"}}


@pytest.fixture(scope="module")
def space(bed: Bed) -> Iterator[str]:
    """One for all: next to nothing is made in it."""
    with bed.namespace("rules") as name:
        yield name


def _refusal(bed: Bed, space: str, resource: dict[str, Any]) -> str:
    try:
        bed.client.check(resource, space)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["a", "a" * 40, "chat-2", "x-y-z"])
def test_a_good_name_is_accepted(bed: Bed, space: str, name: str) -> None:
    assert _refusal(bed, space, service(name)) == ""


@pytest.mark.parametrize(
    "name", ["a" * 41, "a" * 52, "a" * 63, "a" * 200, "chat.one", "2chat", "chat-ranks", "chat-leaders", "chat-router"]
)
def test_a_name_that_children_could_not_carry_is_refused(bed: Bed, space: str, name: str) -> None:
    assert "metadata.name" in _refusal(bed, space, service(name))


CASES: dict[str, dict[str, Any]] = {
    "an unknown scheme": {"model": {"uri": "s3://bucket/model"}},
    "a path that leaves its volume": {"model": {"uri": "pvc://claim/../other"}},
    "a path that leaves it by escapes": {"model": {"uri": "pvc://claim/%2E%2E/other"}},
    "a relative folder": {"model": {"uri": "file://models"}},
    "a rollout that cannot step": {"rollout": {"maxSurge": 0, "maxUnavailable": 0}},
    "more requests than tokens of a step": {"engine": {"maxRequests": 300, "maxBatchTokens": 256}},
    "more requests than two stages have tokens": {"engine": {"maxRequests": 1025}, "parallelism": {"pipeline": 2}},
    "a number format that CPUs lack": {"model": {"uri": MODEL, "dtype": "bfloat16"}},
    "a GPU among the requests": {"resources": {"requests": {"nvidia.com/gpu": 1}}},
    "a GPU among the limits": {"resources": {"limits": {"memory": "1Gi", "nvidia.com/gpu": "2"}}, **GPU},
    "a pod with ranks of two stages": {"parallelism": {"tensor": 3}, "accelerator": {"perPod": 2}},
    "a pod larger than a stage": {"accelerator": {"perPod": 2}},
    "more ranks than a group can have": {"parallelism": {"tensor": 13, "pipeline": 5}},
    "a stage of GPUs over several pods": {
        "parallelism": {"tensor": 2},
        "accelerator": {"resource": "nvidia.com/gpu", "perPod": 1},
    },
    "an interval that no step keeps": {"engine": {"tokenInterval": "0ms"}},
    "an interval of more than a minute": {"engine": {"tokenInterval": "2m"}},
    "a cache too small for anything": {"engine": {"kvCacheMemory": "1Mi"}},
    "worker requests above limits": {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
    "one port for HTTP and gRPC": {"router": {"service": {"port": 8033}}},
    "a load balancer without keys": {"router": {"service": {"type": "LoadBalancer"}}},
    "a class of load balancers for none": {"router": {"service": {"loadBalancerClass": "a.example/b"}}},
    "ranges of a load balancer for none": {
        "router": {"service": {"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}
    },
    "traffic from outside without a way in": {"router": {"service": {"externalTrafficPolicy": "Local"}}},
    "a grace period of more than a day": {"disruption": {"gracePeriod": "25h"}},
    "a node that may be not ready for more than a day": {"disruption": {"notReadyAfter": "25h"}},
    "a node that may be lost for more than a day": {"disruption": {"nodeLostAfter": "25h"}},
    "a gang back-off after more than a day": {"scheduling": {"gangBackoffAfter": "25h"}},
    "a client that selects nothing": {"networkPolicy": {"clients": [{}]}},
    "a scraper by range and label": {
        "networkPolicy": {"metrics": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]}
    },
    "keys in a Secret of ours": {"router": {"apiKeys": {"secretName": "chat-router-tls"}}},
    "a rollout that fails at once": {"rollout": {"progressDeadline": "999ms"}},
    "a rollout of more than a week": {"rollout": {"progressDeadline": "169h"}},
    "a wait in words": {"router": {"queue": {"maxWait": "5 minutes"}}},
    "a wait of more than a day": {"router": {"queue": {"maxWait": "1441m"}}},
    "router requests above limits": {"router": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}},
}
BOUNDS: dict[str, dict[str, Any]] = {
    "spec.replicas": {"replicas": -1},
    "spec.replicas of a thousand": {"replicas": 1000},
    "spec.model.dtype": {"model": {"uri": MODEL, "dtype": "float8"}},
    "spec.model.contextLength": {"model": {"uri": MODEL, "contextLength": 0}},
    "spec.model.servedName": {"model": {"uri": MODEL, "servedName": "two words"}},
    "spec.accelerator.resource": {"accelerator": {"resource": "abacus"}},
    "spec.parallelism.tensor": {"parallelism": {"tensor": 0}},
    "spec.parallelism.pipeline": {"parallelism": {"pipeline": 65}},
    "spec.parallelism.pipeline of no stage": {"parallelism": {"pipeline": 0}},
    "spec.accelerator.perPod": {"accelerator": {"perPod": 0}},
    "spec.engine.maxBatchTokens": {"engine": {"maxBatchTokens": 0}},
    "spec.engine.tokenInterval": {"engine": {"tokenInterval": "soon"}},
    "spec.engine.kvCacheMemory": {"engine": {"kvCacheMemory": "much"}},
    "spec.resources.limits": {"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "much"}}},
    "spec.router.resources.requests": {"router": {"resources": {"requests": {"cpu": "-"}, "limits": {"cpu": "1"}}}},
    "spec.router.processes": {"router": {"processes": 0}},
    "spec.router.maxConnections": {"router": {"maxConnections": 0}},
    "spec.router.clientPriority": {"router": {"clientPriority": "yes"}},
    "spec.router.strict": {"router": {"strict": "yes"}},
    "spec.router.corsOrigins[1]": {"router": {"corsOrigins": ["*", "https://a.example/"]}},
    "spec.router.toolParser": {"router": {"toolParser": "grok"}},
    "spec.router.reasoningParser": {"router": {"reasoningParser": "deepseek_r1"}},
    "spec.router.queue.maxWait": {"router": {"queue": {"maxWait": "a " * 20}}},
    "spec.router.apiKeys.secretName": {"router": {"apiKeys": {"key": "keys"}}},
    "spec.router.apiKeys.key": {"router": {"apiKeys": {"secretName": "clients", "key": "a/b"}}},
    "spec.router.service.type": {"router": {"service": {"type": "ExternalName"}}},
    "spec.router.service.port": {"router": {"service": {"port": 70000}}},
    "spec.router.service.externalTrafficPolicy": {"router": {"service": {"externalTrafficPolicy": "Anywhere"}}},
    "spec.disruption.gracePeriod": {"disruption": {"gracePeriod": "0s"}},
    "spec.scheduling.gangBackoffAfter": {"scheduling": {"gangBackoffAfter": "later"}},
    "spec.networkPolicy.mode": {"networkPolicy": {"mode": "some"}},
    "spec.networkPolicy.clients[0].ipBlock.cidr": {"networkPolicy": {"clients": [{"ipBlock": {"cidr": "ten"}}]}},
    "spec.router.service.grpcPort": {"router": {"service": {"grpcPort": 0}}},
    "spec.rollout.progressDeadline": {"rollout": {"progressDeadline": "1d"}},
    "spec.rollout.onFailure": {"rollout": {"onFailure": "undo"}},
    "spec.rollout.historyLimit": {"rollout": {"historyLimit": 101}},
    "spec.image": {"image": "two words"},
}


GOOD: dict[str, dict[str, Any]] = {
    "a GPU": GPU,
    "a wait of a day": {"router": {"queue": {"maxWait": "24h"}}},
    "a week for a rollout that goes back": {
        "rollout": {"progressDeadline": "168h", "onFailure": "rollback", "historyLimit": 0}
    },
    "as many requests as a GPU takes": {"engine": {"maxRequests": 4096}, **GPU},
    "as many requests as a pipeline takes": {"engine": {"maxRequests": 4096}, "parallelism": {"pipeline": 8}, **GPU},
    "a stage in one pod": {"parallelism": {"tensor": 3}},
    "a stage over three pods, twice": {"parallelism": {"tensor": 3, "pipeline": 2}, "accelerator": {"perPod": 1}},
    "as many ranks as a group can have": {"parallelism": {"tensor": 64}, "accelerator": {"perPod": 64}},
    "GPUs, in so many words": {
        "parallelism": {"tensor": 2, "pipeline": 2},
        "accelerator": {"resource": "nvidia.com/gpu", "perPod": 2},
    },
    "few connections, and clients that choose their priority": {
        "router": {"maxConnections": 1, "clientPriority": True}
    },
    "pages of two origins, and parsers by name": {
        "router": {
            "corsOrigins": ["https://a.example", "http://[::1]:8080", "*"],
            "strict": True,
            "toolParser": "hermes",
            "reasoningParser": "think",
        }
    },
    "a load balancer with keys": {
        "router": {"service": {"type": "LoadBalancer"}, "apiKeys": {"secretName": "clients"}}
    },
    "a load balancer that is open, with all that one can have": {
        "router": {
            "service": {
                "type": "LoadBalancer",
                "insecure": True,
                "annotations": {"example.com/internal": "true"},
                "loadBalancerClass": "example.com/nlb",
                "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"],
                "externalTrafficPolicy": "Local",
            }
        }
    },
    "a day for everything": {
        "disruption": {"gracePeriod": "24h", "notReadyAfter": "1440m", "nodeLostAfter": "86400s"},
        "scheduling": {"gangBackoffAfter": "24h"},
    },
    "groups that never back off": {"scheduling": {"gangBackoffAfter": "never"}},
    "peers of each kind": {
        "networkPolicy": {
            "clients": [
                {"namespaceSelector": {}},
                {
                    "podSelector": {"matchLabels": {"app": "gateway"}},
                    "namespaceSelector": {
                        "matchExpressions": [{"key": "team.example.com/name", "operator": "In", "values": ["a", "b"]}]
                    },
                },
                {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
            ],
            "metrics": [],
        }
    },
    "no policies": {"networkPolicy": {"mode": "none"}},
    "keys of a Secret": {"router": {"apiKeys": {"secretName": "clients", "key": "keys.txt"}}},
    "a step of fewer tokens than requests by default": {"engine": {"maxBatchTokens": 128}, **GPU},
    "a short interval between tokens": {"engine": {"tokenInterval": "20ms"}},
    "a number format of GPUs": {"model": {"uri": MODEL, "dtype": "bfloat16"}, **GPU},
    "memory beside the GPU": {"resources": {"requests": {"cpu": "4"}, "limits": {"memory": "64Gi"}}, **GPU},
}


@pytest.mark.parametrize("what", GOOD)
def test_a_spec_within_the_rules_is_accepted(bed: Bed, space: str, what: str) -> None:
    assert _refusal(bed, space, service(**GOOD[what])) == ""


@pytest.mark.parametrize("what", CASES)
def test_a_spec_against_the_rules_is_refused_with_the_rules_message(bed: Bed, space: str, what: str) -> None:
    said = _refusal(bed, space, service(**CASES[what]))
    assert any(rule.message in said for rule in RULES), said


def test_every_rule_refuses_something(bed: Bed, space: str) -> None:
    said = [_refusal(bed, space, service(**case)) for case in CASES.values()]
    said += [_refusal(bed, space, service(name)) for name in ("2chat", "chat-ranks")]
    said += [
        _refusal(bed, space, service(**case)) for spec in BAD.values() for case in (spec, of_routers(spec) or spec)
    ]
    for rule in RULES:
        assert any(rule.message in text for text in said), f"no case breaks the rule: {rule.message}"


@pytest.mark.parametrize("what", pod_fields.GOOD)
def test_what_a_pod_may_have_a_service_may_ask_for(bed: Bed, space: str, what: str) -> None:
    spec = pod_fields.GOOD[what]
    assert _refusal(bed, space, as_pod(spec)) == "", "the table is wrong"
    assert _refusal(bed, space, service(**spec)) == _refusal(bed, space, service(**(of_routers(spec) or {}))) == ""


@pytest.mark.parametrize("what", BAD)
def test_what_a_pod_may_not_have_is_refused_in_a_service(bed: Bed, space: str, what: str) -> None:
    spec = BAD[what]
    assert _refusal(bed, space, as_pod(spec)), "the table is wrong"
    assert "spec." in _refusal(bed, space, service(**spec))
    assert "spec.router.resources" in _refusal(bed, space, service(**(of_routers(spec) or {}))) or not of_routers(spec)


@pytest.mark.parametrize("where", BOUNDS)
def test_a_value_out_of_bounds_is_refused_with_its_field(bed: Bed, space: str, where: str) -> None:
    said = _refusal(bed, space, service(**BOUNDS[where]))
    assert where.split()[0] in said
    assert "evaluating rule" not in said and "division by zero" not in said, "a rule fails on a value that is refused"


def test_an_unknown_field_is_refused_by_a_strict_client(bed: Bed, space: str) -> None:
    assert "quantisation" in _refusal(bed, space, service(quantisation="int8"))


def test_the_smallest_service_gets_its_defaults(bed: Bed, space: str) -> None:
    bed.apply(service(), namespace=space)
    found = bed.get("infsvc", "chat", space)
    assert found is not None
    assert found["status"] == {"observedGeneration": -1}, "tools wait for the operator's first look"
    assert found["spec"]["parallelism"] == {"tensor": 1, "pipeline": 1}
    rollout = {"maxSurge": 1, "maxUnavailable": 0, "progressDeadline": "30m", "onFailure": "pause", "historyLimit": 5}
    assert found["spec"]["replicas"] == 1 and found["spec"]["rollout"] == rollout


def test_explain_reads_as_a_manual(bed: Bed) -> None:
    text = bed.kubectl("explain", "infsvc.spec", "--recursive=false")
    assert "no description" not in text.lower() and "replicas" in text
    for part in ("engine", "parallelism", "accelerator"):
        assert "<empty>" not in bed.kubectl("explain", f"infsvc.spec.{part}")
    for field, default in (("replicas", "Default: 1."), ("router.queue.maxWait", "Default: 60s.")):
        assert default in " ".join(bed.kubectl("explain", f"infsvc.spec.{field}").split())


def test_a_column_shows_ready_of_desired_groups(bed: Bed, space: str) -> None:
    bed.apply(service("columns"), namespace=space)
    heads = bed.kubectl("-n", space, "get", "infsvc", "columns").splitlines()[0].split()
    assert heads == ["NAME", "READY", "UPDATED", "REASON", "MODEL", "URL", "AGE"]
