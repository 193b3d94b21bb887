"""The schema of InferenceService: each field with its meaning, unit, bound and default, written once.

`octavo crd` prints it as the CRD, `parse` checks files against it, `kubectl explain infsvc.spec` shows it.
"""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

from octavo.operator.api.status_schema import status_schema
from octavo.operator.quantity import PATTERN as QUANTITY
from octavo.operator.quantity import quantity

API_VERSION = "octavo.dev/v1alpha1"
KIND = "InferenceService"

Json = dict[str, Any]  # Any: JSON

LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
# One segment is a DNS-1123 name; a path has no empty part and no `..`, so that it cannot leave its volume.
BUNDLED = r"^bundled://[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
CLAIM = r"^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9_.-]+)*/?$"
FOLDER = r"^file://(/[A-Za-z0-9_.-]+)+/?$"

MAX_REQUESTS, MAX_BATCH_TOKENS = 64, 512  # the worker's own defaults
DEFAULT_WORKER = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}}
DEFAULT_ROUTER = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule across fields: CEL for the API server, evaluated at `at`, and the same as a function for us."""

    at: str  # "" is the whole resource, else a path such as spec.rollout
    cel: str
    field: str  # the field that the message is about
    message: str
    holds: Callable[[Mapping[str, Any]], bool]  # Any: JSON


def _name_allowed(resource: Mapping[str, Any]) -> bool:
    name = str(resource["metadata"]["name"])
    return bool(re.match(LABEL, name)) and not name.endswith(("-ranks", "-leaders", "-router"))


def _uri_allowed(resource: Mapping[str, Any]) -> bool:
    uri = str(resource["spec"]["model"]["uri"])
    return any(re.match(form, uri) for form in (BUNDLED, CLAIM, FOLDER)) and "/../" not in f"{uri}/"


def _requests_within_limits(part: str) -> Callable[[Mapping[str, Any]], bool]:
    def holds(resource: Mapping[str, Any]) -> bool:
        spec = resource["spec"]
        resources = spec["router"]["resources"] if part == "router" else spec["resources"]
        limits = resources.get("limits", {})
        requests = resources.get("requests", {})
        return all((quantity(requests[k]) or 0) <= (quantity(limits[k]) or 0) for k in requests if k in limits)

    return holds


def _within(resources: str) -> str:
    """CEL: what is requested is at most the limit, where both are given. Keys are bounded, so the cost is."""
    return (
        f"!has({resources}.requests) || !has({resources}.limits) || "
        f"{resources}.requests.all(k, !(k in {resources}.limits) || "
        f"quantity(string({resources}.requests[k])).compareTo(quantity(string({resources}.limits[k]))) <= 0)"
    )


RULES = (
    Rule(
        "",
        f"self.metadata.name.matches('{LABEL}')",
        "metadata.name",
        "metadata.name must be a DNS label that starts with a letter: a-z, 0-9 and -, ending in a letter or digit",
        lambda resource: _name_allowed({"metadata": {"name": _stem(resource)}}),
    ),
    Rule(
        "",
        "!self.metadata.name.endsWith('-ranks') && !self.metadata.name.endsWith('-leaders') "
        "&& !self.metadata.name.endsWith('-router')",
        "metadata.name",
        "metadata.name must not end in -ranks, -leaders or -router: these name the objects of another service",
        _name_allowed,
    ),
    Rule(
        "spec.model",
        f"(self.uri.matches('{BUNDLED}') || self.uri.matches('{CLAIM}') || self.uri.matches('{FOLDER}')) "
        "&& !(self.uri + '/').contains('/../')",
        "spec.model.uri",
        "spec.model.uri must be bundled://NAME, pvc://CLAIM/PATH or file:///PATH, without .. in the path",
        _uri_allowed,
    ),
    Rule(
        "spec.engine",
        f"(has(self.maxRequests) ? self.maxRequests : {MAX_REQUESTS}) <= "
        f"(has(self.maxBatchTokens) ? self.maxBatchTokens : {MAX_BATCH_TOKENS})",
        "spec.engine",
        f"maxRequests (default {MAX_REQUESTS}) must not exceed maxBatchTokens (default {MAX_BATCH_TOKENS}): "
        "each running request takes a token of every step",
        lambda resource: (
            resource["spec"]["engine"].get("maxRequests", MAX_REQUESTS)
            <= resource["spec"]["engine"].get("maxBatchTokens", MAX_BATCH_TOKENS)
        ),
    ),
    Rule(
        "spec.engine",
        "!has(self.kvCacheMemory) || quantity(string(self.kvCacheMemory)).compareTo(quantity('16Mi')) >= 0",
        "spec.engine.kvCacheMemory",
        "spec.engine.kvCacheMemory must be at least 16Mi",
        lambda resource: (quantity(resource["spec"]["engine"].get("kvCacheMemory", "16Mi")) or 0) >= 2**24,
    ),
    Rule(
        "spec.rollout",
        "self.maxSurge > 0 || self.maxUnavailable > 0",
        "spec.rollout",
        "maxSurge and maxUnavailable must not both be 0: no rollout could make a step",
        lambda resource: resource["spec"]["rollout"]["maxSurge"] + resource["spec"]["rollout"]["maxUnavailable"] > 0,
    ),
    Rule(
        "spec.resources",
        _within("self"),
        "spec.resources",
        "what spec.resources.requests asks for must not exceed spec.resources.limits",
        _requests_within_limits("worker"),
    ),
    Rule(
        "spec.router.resources",
        _within("self"),
        "spec.router.resources",
        "what spec.router.resources.requests asks for must not exceed spec.router.resources.limits",
        _requests_within_limits("router"),
    ),
)


def _stem(resource: Mapping[str, Any]) -> str:
    """The name without a forbidden ending, so that each of the two rules about names speaks only of its own matter."""
    name = str(resource["metadata"]["name"])
    for ending in ("-ranks", "-leaders", "-router"):
        name = name.removesuffix(ending)
    return name


@cache
def service_schema() -> Json:
    """The openAPIV3Schema of the whole resource. Made once: not to be written into."""
    return _object(
        "An InferenceService serves one language model: routers that speak the OpenAI API, and groups of worker pods "
        "that hold a copy of the model each.",
        {
            "apiVersion": {"type": "string", "maxLength": 64, "description": "octavo.dev/v1alpha1."},
            "kind": {"type": "string", "maxLength": 64, "description": "InferenceService."},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}}},
            "spec": _spec(),
            "status": status_schema(),
        },
        required=["metadata", "spec"],
    )


def crd_schema() -> Json:
    """`service_schema` with the CEL rules in their places."""
    schema = deepcopy(service_schema())
    for rule in RULES:
        node = schema
        for step in rule.at.split(".") if rule.at else ():
            node = node["properties"][step]
        node.setdefault("x-kubernetes-validations", []).append({"rule": rule.cel, "message": rule.message})
    return schema


def _object(
    description: str, properties: Json, *, default: Json | None = None, required: list[str] | None = None
) -> Json:
    schema: Json = {"type": "object", "description": description, "properties": properties}
    if required:
        schema["required"] = required
    if default is not None:
        schema["default"] = default
    return schema


def _integer(description: str, low: int, high: int, default: int | None = None) -> Json:
    schema: Json = {"type": "integer", "format": "int32", "description": description, "minimum": low, "maximum": high}
    return schema if default is None else {**schema, "default": default}


def _text(description: str, longest: int, **more: Any) -> Json:
    return {"type": "string", "description": description, "maxLength": longest, **more}


def _flag(description: str, default: bool) -> Json:
    return {"type": "boolean", "description": description, "default": default}


def _quantity(description: str) -> Json:
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "description": description,
        "pattern": QUANTITY,
        "maxLength": 32,
    }


def _map(description: str, values: Json, most: int, default: Json | None = None) -> Json:
    schema: Json = {"type": "object", "description": description, "additionalProperties": values, "maxProperties": most}
    return schema if default is None else {**schema, "default": default}


def _resources(of: str, default: Json) -> Json:
    amounts = "Amounts by resource name, e.g. cpu: 500m, memory: 2Gi."
    requests, limits = default["requests"], default["limits"]
    shown = f"requests cpu {requests['cpu']} and memory {requests['memory']}, limit memory {limits['memory']}"
    return _object(
        f"Resources of each {of} container. Default: {shown}. Setting it replaces the whole default.",
        {
            "requests": _map(f"What the scheduler reserves. {amounts}", _quantity("An amount."), 16),
            "limits": _map(f"What the container may not exceed. {amounts}", _quantity("An amount."), 16),
        },
        default=default,
    )


def _spec() -> Json:
    return _object(
        "The wished service.",
        {
            "model": _model(),
            "replicas": _integer(
                "Number of groups, each a copy of the model that serves on its own. `kubectl scale` sets it.",
                0,
                999,
                1,
            ),
            "accelerator": _accelerator(),
            "engine": _engine(),
            "router": _router(),
            "resources": _resources("worker", DEFAULT_WORKER),
            "rollout": _rollout(),
            "paused": _flag(
                "true removes all groups and keeps the object, its address and its routers, which answer 503.", False
            ),
            "restartAt": _text(
                "Any new value, by custom the present time, replaces the groups and routers one by one, with the "
                "operator's present defaults (images among them).",
                64,
                minLength=1,
            ),
            "image": _text(
                "Worker image, instead of the operator's default. A change rolls the groups.",
                512,
                minLength=1,
                pattern=r"^\S+$",
            ),
        },
        required=["model"],
    )


def _model() -> Json:
    return _object(
        "The model to serve.",
        {
            "uri": _text(
                "Where the model is: bundled://smollm2-135m-instruct (in the worker image), pvc://CLAIM/PATH (a folder "
                "of a PersistentVolumeClaim, mounted read-only), or file:///PATH (a folder of the node, if the operator"
                " was started with --allow-host-path). It holds config.json, safetensors and the tokenizer.",
                512,
                minLength=1,
            ),
            "servedName": _text(
                "Name by which clients ask for the model. Default: metadata.name.",
                128,
                minLength=1,
                pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$",
            ),
            "dtype": _text(
                "Number format of weights and computation. auto: float32 on CPUs.",
                16,
                enum=["auto", "float32"],
                default="auto",
            ),
            "contextLength": _integer(
                "Most tokens of prompt and answer together. Default: the model's own, lowered (and said so in the "
                "status) when the KV cache cannot hold one such request.",
                16,
                10_485_760,
            ),
        },
        required=["uri"],
    )


def _accelerator() -> Json:
    toleration = _object(
        "A taint that pods accept, as in a pod.",
        {
            "key": _text("Key of the taint; empty with operator Exists matches all.", 316),
            "operator": _text("How value is compared.", 16, enum=["Exists", "Equal"]),
            "value": _text("Value of the taint.", 63),
            "effect": _text(
                "Effect of the taint; empty matches all.", 32, enum=["", "NoSchedule", "PreferNoSchedule", "NoExecute"]
            ),
            "tolerationSeconds": {
                "type": "integer",
                "format": "int64",
                "description": "How long a NoExecute taint is borne, in seconds.",
                "minimum": 0,
                "maximum": 86_400_000,
            },
        },
    )
    return _object(
        "What the workers compute on, and where.",
        {
            "resource": _text("cpu: the workers compute on CPUs.", 64, enum=["cpu"], default="cpu"),
            "nodeSelector": _map(
                "Labels that a node must have to run a worker.", _text("Value of the label.", 63), 32, {}
            ),
            "tolerations": {
                "type": "array",
                "description": "Taints that worker pods accept.",
                "items": toleration,
                "maxItems": 32,
                "default": [],
            },
        },
        default={},
    )


def _engine() -> Json:
    return _object(
        "How the engine of each group schedules.",
        {
            "maxBatchTokens": _integer(
                "Most tokens of one step. More raises throughput and the time between two tokens. Default: 512.",
                16,
                1_048_576,
            ),
            "maxRequests": _integer("Most requests that run at once in a group. Default: 64.", 1, 4096),
            "kvCacheMemory": _quantity(
                "Memory of the KV cache, e.g. 512Mi. Default: a quarter of the container's memory limit."
            ),
            "prefixCaching": _flag("Keep the KV of past prompts and reuse it for prompts that begin alike.", True),
        },
        default={},
    )


def _router() -> Json:
    queue = _object(
        "Requests that wait for a group.",
        {
            "maxRequests": _integer("Most requests that wait in a router pod; more get 429.", 1, 1_000_000, 1000),
            "maxWait": _text(
                "Longest wait, such as 500ms, 60s or 2m; then 503.",
                8,
                minLength=2,
                pattern=r"^[0-9]{1,6}(ms|s|m)$",
                default="60s",
            ),
        },
        default={},
    )
    service = _object(
        "The Service that clients connect to; it has the name of the resource.",
        {
            "type": _text(
                "Type of the Service.", 16, enum=["ClusterIP", "NodePort", "LoadBalancer"], default="ClusterIP"
            ),
            "port": _integer("Port of the Service.", 1, 65535, 80),
        },
        default={},
    )
    return _object(
        "The router: it speaks HTTP, queues requests and hands them to groups.",
        {
            "replicas": _integer("Number of router pods.", 0, 100, 1),
            "processes": _integer("Processes of a router pod, each using about one CPU when busy.", 1, 64, 1),
            "queue": queue,
            "service": service,
            "resources": _resources("router", DEFAULT_ROUTER),
        },
        default={},
    )


def _rollout() -> Json:
    return _object(
        "How groups are replaced when the spec changes: a new one serves before an old one is drained.",
        {
            "maxSurge": _integer("How many groups there may be beyond replicas.", 0, 999, 1),
            "maxUnavailable": _integer(
                "How many of replicas may be missing. With maxSurge 0, for clusters without room, old groups go first.",
                0,
                999,
                0,
            ),
        },
        default={"maxSurge": 1, "maxUnavailable": 0},
    )
