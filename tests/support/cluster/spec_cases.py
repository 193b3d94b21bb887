"""Specs of an InferenceService within and against the rules across fields, for `parse` and for the API server alike."""

from typing import Any

from support.cluster.services import resource

from octavo.operator.api.rules import RULES
from octavo.operator.api.schema import service_schema
from octavo.operator.api.validate import Rule, complete

Spec = dict[str, Any]  # Any: fields of spec
MODEL = "bundled://smollm2-135m-instruct"
GPU: Spec = {"accelerator": {"resource": "nvidia.com/gpu"}}

GOOD: dict[str, Spec] = {
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
    "a guaranteed pod, and guaranteed routers": {
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}},
        "router": {"resources": {"requests": {"cpu": "1000m"}, "limits": {"cpu": 1}}},
    },
    "requests below limits": {"resources": {"requests": {"cpu": "1999m"}, "limits": {"cpu": "2"}}},
}

BAD: dict[str, tuple[str, Spec]] = {  # with the beginning of the message of the rule
    "an unknown scheme": ("spec.model.uri must be", {"model": {"uri": "s3://bucket/model"}}),
    "a path that leaves its volume": ("spec.model.uri must be", {"model": {"uri": "pvc://claim/../other"}}),
    "a path that leaves it by escapes": ("spec.model.uri must be", {"model": {"uri": "pvc://claim/%2E%2E/other"}}),
    "a relative folder": ("spec.model.uri must be", {"model": {"uri": "file://models"}}),
    "a rollout that cannot step": ("maxSurge and maxUnavailable", {"rollout": {"maxSurge": 0, "maxUnavailable": 0}}),
    "more requests than tokens of a step": (
        "maxRequests must",
        {"engine": {"maxRequests": 300, "maxBatchTokens": 256}},
    ),
    "more requests than two stages have tokens": (
        "maxRequests must",
        {"engine": {"maxRequests": 1025}, "parallelism": {"pipeline": 2}},
    ),
    "a number format that CPUs lack": ("spec.model.dtype", {"model": {"uri": MODEL, "dtype": "bfloat16"}}),
    "a GPU among the requests": ("spec.resources must not name", {"resources": {"requests": {"nvidia.com/gpu": 1}}}),
    "a GPU among the limits": (
        "spec.resources must not name",
        {"resources": {"limits": {"memory": "1Gi", "nvidia.com/gpu": "2"}}, **GPU},
    ),
    "a pod with ranks of two stages": (
        "spec.accelerator.perPod must divide",
        {"parallelism": {"tensor": 3}, "accelerator": {"perPod": 2}},
    ),
    "a pod larger than a stage": ("spec.accelerator.perPod must divide", {"accelerator": {"perPod": 2}}),
    "more ranks than a group can have": ("spec.parallelism:", {"parallelism": {"tensor": 13, "pipeline": 5}}),
    "a stage of GPUs over several pods": (
        "spec.accelerator.perPod must equal",
        {
            "parallelism": {"tensor": 2},
            "accelerator": {"resource": "nvidia.com/gpu", "perPod": 1},
        },
    ),
    "an interval that no step keeps": ("spec.engine.tokenInterval", {"engine": {"tokenInterval": "0ms"}}),
    "an interval of more than a minute": ("spec.engine.tokenInterval", {"engine": {"tokenInterval": "2m"}}),
    "a cache too small for anything": ("spec.engine.kvCacheMemory", {"engine": {"kvCacheMemory": "1Mi"}}),
    "worker requests above limits": (
        "spec.resources.requests must not exceed",
        {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
    ),
    "one port for HTTP and gRPC": ("spec.router.service.grpcPort", {"router": {"service": {"port": 8033}}}),
    "a load balancer without keys": ("spec.router.service.type", {"router": {"service": {"type": "LoadBalancer"}}}),
    "a class of load balancers for none": (
        "spec.router.service: ",
        {"router": {"service": {"loadBalancerClass": "a.example/b"}}},
    ),
    "ranges of a load balancer for none": (
        "spec.router.service: ",
        {"router": {"service": {"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}},
    ),
    "traffic from outside without a way in": (
        "spec.router.service.externalTrafficPolicy",
        {"router": {"service": {"externalTrafficPolicy": "Local"}}},
    ),
    "a grace period of more than a day": ("spec.disruption.gracePeriod", {"disruption": {"gracePeriod": "25h"}}),
    "a node that may be not ready for more than a day": (
        "spec.disruption.notReadyAfter",
        {"disruption": {"notReadyAfter": "25h"}},
    ),
    "a node that may be lost for more than a day": (
        "spec.disruption.nodeLostAfter",
        {"disruption": {"nodeLostAfter": "25h"}},
    ),
    "a gang back-off after more than a day": (
        "spec.scheduling.gangBackoffAfter",
        {"scheduling": {"gangBackoffAfter": "25h"}},
    ),
    "a client that selects nothing": ("spec.networkPolicy.clients", {"networkPolicy": {"clients": [{}]}}),
    "a scraper by range and label": (
        "spec.networkPolicy.metrics",
        {"networkPolicy": {"metrics": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]}},
    ),
    "keys in a Secret of ours": (
        "spec.router.apiKeys.secretName",
        {"router": {"apiKeys": {"secretName": "chat-router-tls"}}},
    ),
    "a rollout that fails at once": ("spec.rollout.progressDeadline", {"rollout": {"progressDeadline": "999ms"}}),
    "a rollout of more than a week": ("spec.rollout.progressDeadline", {"rollout": {"progressDeadline": "169h"}}),
    "a wait in words": ("spec.router.queue.maxWait", {"router": {"queue": {"maxWait": "5 minutes"}}}),
    "a wait of more than a day": ("spec.router.queue.maxWait", {"router": {"queue": {"maxWait": "1441m"}}}),
    "router requests above limits": (
        "spec.router.resources.requests must not exceed",
        {"router": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}},
    ),
}


def broken(spec: Spec) -> set[Rule]:
    """The rules that a service with this spec breaks, by their functions."""
    whole = complete(service_schema(), resource(**spec), "")
    return {one for one in RULES if not one.holds(whole)}


def rule(begin: str) -> Rule:
    """The one rule whose message begins so."""
    (found,) = [one for one in RULES if one.message.startswith(begin)]
    return found
