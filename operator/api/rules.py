"""Validation rules across fields of InferenceService: CEL for the API server, functions for `parse`."""

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import getitem
from typing import Any

from octavo.operator.api.accelerators import DEVICES, GPU, device
from octavo.operator.api.fields import seconds
from octavo.operator.api.pod_rules import POD_RULES, of_resources
from octavo.operator.api.quantity import quantity
from octavo.operator.api.schemas.placement import DISRUPTION
from octavo.operator.api.validate import Rule
from octavo.shared import model_uri
from octavo.shared.limits import LEAST_TOKEN_INTERVAL_S, MAX_RANKS, MOST_TOKEN_INTERVAL_S
from octavo.shared.router_settings import SETTINGS, Setting
from octavo.shared.setting_kinds import DURATION, MAX_DURATION_S, Duration

OWN_SECRETS = ("-ca", "-worker-tls", "-router-tls")  # suffixes of names.secrets
MAX_DEADLINE_S = 7 * 86_400
LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


def _name_allowed(resource: Mapping[str, Any]) -> bool:
    name = str(resource["metadata"]["name"])
    return bool(re.match(LABEL, name)) and not name.endswith(("-ranks", "-leaders", "-router"))


def _uri_allowed(resource: Mapping[str, Any]) -> bool:
    uri = str(resource["spec"]["model"]["uri"])
    return any(re.match(pattern, uri) for pattern in model_uri.PATTERNS) and "/../" not in f"{uri}/"


def _matches_any(text: str, patterns: Iterable[str]) -> str:
    """CEL expression."""
    return " || ".join(f"{text}.matches('{pattern}')" for pattern in patterns)


def _requests_within_tokens(resource: Mapping[str, Any]) -> bool:
    engine, defaults = resource["spec"]["engine"], device(resource["spec"])
    stages = resource["spec"]["parallelism"]["pipeline"]
    most = stages * engine.get("maxBatchTokens", defaults.batch_tokens(stages))
    return bool(engine.get("maxRequests", most) <= most)


_LEAST_INTERVAL, _MOST_INTERVAL = map(Duration().to_field, (LEAST_TOKEN_INTERVAL_S, MOST_TOKEN_INTERVAL_S))


def _interval_allowed(resource: Mapping[str, Any]) -> bool:
    interval = resource["spec"]["engine"].get("tokenInterval")
    return interval is None or LEAST_TOKEN_INTERVAL_S <= Duration().from_field(interval) <= MOST_TOKEN_INTERVAL_S


def _differ(record: Mapping[str, Any], one: str, other: str) -> bool:
    return bool(record[one] != record[other])


def _divided(tensor: int, accelerator: Mapping[str, Any]) -> bool:
    return tensor % int(accelerator.get("perPod", 1)) == 0


def _stage_in_a_pod(spec: Mapping[str, Any]) -> bool:
    tensor, accelerator = spec["parallelism"]["tensor"], spec["accelerator"]
    return bool(accelerator["resource"] == "cpu" or accelerator.get("perPod", tensor) == tensor)


def _ranks(spec: Mapping[str, Any]) -> int:
    return int(spec["parallelism"]["tensor"] * spec["parallelism"]["pipeline"])


def _by_device(default: str) -> str:
    """CEL expression at spec: the device's default of one field of `Device`."""
    on_gpu, on_cpu = (getattr(DEVICES[name], default) for name in (GPU, "cpu"))
    return f"(self.accelerator.resource == '{GPU}' ? {on_gpu} : {on_cpu})"


def _batch_tokens() -> str:
    """CEL expression at spec: `Device.batch_tokens`."""
    most, least = _by_device("max_batch_tokens"), _by_device("least_batch_tokens")
    divided = f"{most} / self.parallelism.pipeline"
    return f"({divided} > {least} ? {divided} : {least})"


def _shown_tokens() -> str:
    gpu, cpu = DEVICES[GPU], DEVICES["cpu"]
    divided = f"{gpu.max_batch_tokens} divided by the stages, at least {gpu.least_batch_tokens}"
    return f"{divided}, on GPUs, {cpu.max_batch_tokens} on CPUs"


def _requests_within_limits(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> bool:
    return all((quantity(requests[k]) or 0) <= (quantity(limits[k]) or 0) for k in requests if k in limits)


def _within(resources: str) -> str:
    """CEL expression: each request is at most its limit. The number of keys is bounded, and so is the cost."""
    return (
        f"!has({resources}.requests) || !has({resources}.limits) || "
        f"{resources}.requests.all(k, !(k in {resources}.limits) || "
        f"!isQuantity(string({resources}.requests[k])) || !isQuantity(string({resources}.limits[k])) || "
        f"quantity(string({resources}.requests[k])).compareTo(quantity(string({resources}.limits[k]))) <= 0)"
    )


def _keys_are_the_users(resource: Mapping[str, Any]) -> bool:
    """The operator's own Secrets hold private keys, which must not become API keys."""
    keys = resource["spec"]["router"].get("apiKeys")
    return keys is None or keys["secretName"] not in [resource["metadata"]["name"] + ending for ending in OWN_SECRETS]


def _has_keys_or_says_so(router: Mapping[str, Any]) -> bool:
    service = router["service"]
    return bool(service["type"] != "LoadBalancer" or router.get("apiKeys") is not None or service["insecure"])


def _of_load_balancer(service: Mapping[str, Any]) -> bool:
    given = "loadBalancerClass" in service or service["loadBalancerSourceRanges"]
    return service["type"] == "LoadBalancer" or not given


def _outside_traffic(service: Mapping[str, Any]) -> bool:
    return "externalTrafficPolicy" not in service or service["type"] != "ClusterIP"


def _peer_rule(peers: str) -> Rule:
    """A peer without any selector would be refused by the API server when the NetworkPolicy is written."""
    field = f"spec.networkPolicy.{peers}"
    cel = "has(p.ipBlock) != (has(p.podSelector) || has(p.namespaceSelector))"

    def holds(resource: Mapping[str, Any]) -> bool:
        found = resource["spec"]["networkPolicy"].get(peers, ())
        return all(("ipBlock" in peer) != bool(peer.keys() & {"podSelector", "namespaceSelector"}) for peer in found)

    message = f"{field}: each peer must have ipBlock, or else podSelector, namespaceSelector or both"
    return Rule("spec.networkPolicy", f"!has(self.{peers}) || self.{peers}.all(p, {cel})", field, message, holds)


# The API server evaluates rules also on values that a pattern or a minimum has refused. A rule holds for such
# values, so that the refusal says nothing of the rule.
RULES: tuple[Rule, ...] = (
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
        "metadata.name must not end in -ranks, -leaders or -router: objects of other services have such names",
        _name_allowed,
    ),
    Rule(
        "spec.model",
        f"({_matches_any('self.uri', model_uri.PATTERNS)}) && !(self.uri + '/').contains('/../')",
        "spec.model.uri",
        f"spec.model.uri must be {model_uri.forms()}, without .. in the path and with %20 for a space",
        _uri_allowed,
    ),
    Rule(
        "spec",
        "self.parallelism.pipeline < 1 || !has(self.engine.maxRequests) || "
        "self.engine.maxRequests <= self.parallelism.pipeline * "
        f"(has(self.engine.maxBatchTokens) ? self.engine.maxBatchTokens : {_batch_tokens()})",
        "spec.engine",
        "maxRequests must not exceed parallelism.pipeline x maxBatchTokens "
        f"(default {_shown_tokens()}): each running request takes a token of every step of its micro-batch, and there "
        "is one micro-batch per stage",
        _requests_within_tokens,
    ),
    Rule(
        "spec",
        "!has(self.accelerator.perPod) || self.accelerator.perPod < 1 "
        "|| self.parallelism.tensor % self.accelerator.perPod == 0",
        "spec.accelerator.perPod",
        "spec.accelerator.perPod must divide spec.parallelism.tensor: the ranks of a pod belong to one stage",
        lambda resource: _divided(resource["spec"]["parallelism"]["tensor"], resource["spec"]["accelerator"]),
    ),
    Rule(
        "spec",
        f"self.parallelism.tensor * self.parallelism.pipeline <= {MAX_RANKS}",
        "spec.parallelism",
        f"spec.parallelism: tensor x pipeline must be at most {MAX_RANKS} ranks",
        lambda resource: _ranks(resource["spec"]) <= MAX_RANKS,
    ),
    Rule(
        "spec",
        "self.accelerator.resource == 'cpu' || !has(self.accelerator.perPod) "
        "|| self.accelerator.perPod == self.parallelism.tensor",
        "spec.accelerator.perPod",
        f"spec.accelerator.perPod must equal spec.parallelism.tensor when spec.accelerator.resource is {GPU}: the GPUs "
        "of a stage must be in one pod",
        lambda resource: _stage_in_a_pod(resource["spec"]),
    ),
    Rule(
        "spec",
        f"self.accelerator.resource != 'cpu' || self.model.dtype in {list(DEVICES['cpu'].dtypes)}",
        "spec.model.dtype",
        f"spec.model.dtype bfloat16 and float16 need spec.accelerator.resource {GPU}: CPUs compute in float32",
        lambda resource: resource["spec"]["model"]["dtype"] in device(resource["spec"]).dtypes,
    ),
    Rule(
        "spec.engine",
        f"!has(self.tokenInterval) || !self.tokenInterval.matches('{DURATION}') || "
        f"(duration(self.tokenInterval) >= duration('{_LEAST_INTERVAL}') "
        f"&& duration(self.tokenInterval) <= duration('{_MOST_INTERVAL}'))",
        "spec.engine.tokenInterval",
        f"spec.engine.tokenInterval must be between {_LEAST_INTERVAL} and {_MOST_INTERVAL}",
        _interval_allowed,
    ),
    Rule(
        "spec.engine",
        "!has(self.kvCacheMemory) || !isQuantity(string(self.kvCacheMemory)) "
        "|| quantity(string(self.kvCacheMemory)).compareTo(quantity('16Mi')) >= 0",
        "spec.engine.kvCacheMemory",
        "spec.engine.kvCacheMemory must be at least 16Mi",
        lambda resource: (quantity(resource["spec"]["engine"].get("kvCacheMemory", "16Mi")) or 0) >= 2**24,
    ),
    Rule(
        "spec.rollout",
        "self.maxSurge > 0 || self.maxUnavailable > 0",
        "spec.rollout",
        "maxSurge and maxUnavailable must not both be 0: a rollout could not progress",
        lambda resource: resource["spec"]["rollout"]["maxSurge"] + resource["spec"]["rollout"]["maxUnavailable"] > 0,
    ),
    Rule(
        "spec.rollout",
        # The API server evaluates the rule on a default before it fills in the fields of the default.
        f"!has(self.progressDeadline) || !self.progressDeadline.matches('{DURATION}') || "
        "(duration(self.progressDeadline) >= duration('1s') && "
        f"duration(self.progressDeadline) <= duration('{MAX_DEADLINE_S}s'))",
        "spec.rollout.progressDeadline",
        f"spec.rollout.progressDeadline must be 1s to {MAX_DEADLINE_S // 3600}h",
        lambda resource: 1 <= Duration().from_field(resource["spec"]["rollout"]["progressDeadline"]) <= MAX_DEADLINE_S,
    ),
    Rule(
        "spec.resources",
        f"(!has(self.requests) || !('{GPU}' in self.requests)) && (!has(self.limits) || !('{GPU}' in self.limits))",
        "spec.resources",
        f"spec.resources must not name {GPU}: spec.accelerator.resource requests one for each rank of a pod",
        lambda resource: not any(GPU in amounts for amounts in resource["spec"].get("resources", {}).values()),
    ),
    Rule(
        "spec.resources",
        _within("self"),
        "spec.resources",
        "spec.resources.requests must not exceed spec.resources.limits",
        of_resources("spec.resources", _requests_within_limits),
    ),
    Rule(
        "",
        "!has(self.spec.router.apiKeys) || "
        f"!({list(OWN_SECRETS)}.exists(ending, self.spec.router.apiKeys.secretName == self.metadata.name + ending))",
        "spec.router.apiKeys.secretName",
        "spec.router.apiKeys.secretName must not be a Secret that the operator creates for this service",
        _keys_are_the_users,
    ),
    Rule(
        "spec.router.service",
        # The API server evaluates the rule on a default before it fills in the fields of the default.
        "!has(self.port) || !has(self.grpcPort) || self.port != self.grpcPort",
        "spec.router.service.grpcPort",
        "spec.router.service.grpcPort must differ from spec.router.service.port",
        lambda resource: _differ(resource["spec"]["router"]["service"], "port", "grpcPort"),
    ),
    Rule(
        "spec.router",
        # The API server evaluates rules on a default before it fills in the fields of the default.
        "!has(self.service) || !has(self.service.type) || self.service.type != 'LoadBalancer' || has(self.apiKeys) || "
        "(has(self.service.insecure) && self.service.insecure)",
        "spec.router.service.type",
        "spec.router.service.type LoadBalancer needs spec.router.apiKeys, or spec.router.service.insecure: true to "
        "serve every client that reaches the address",
        lambda resource: _has_keys_or_says_so(resource["spec"]["router"]),
    ),
    Rule(
        "spec.router.service",
        "(has(self.type) && self.type == 'LoadBalancer') || (!has(self.loadBalancerClass) && "
        "(!has(self.loadBalancerSourceRanges) || size(self.loadBalancerSourceRanges) == 0))",
        "spec.router.service",
        "spec.router.service: loadBalancerClass and loadBalancerSourceRanges need type LoadBalancer",
        lambda resource: _of_load_balancer(resource["spec"]["router"]["service"]),
    ),
    Rule(
        "spec.router.service",
        "!has(self.externalTrafficPolicy) || (has(self.type) && self.type != 'ClusterIP')",
        "spec.router.service.externalTrafficPolicy",
        "spec.router.service.externalTrafficPolicy needs type NodePort or LoadBalancer",
        lambda resource: _outside_traffic(resource["spec"]["router"]["service"]),
    ),
    *(_peer_rule(peers) for peers in ("clients", "metrics")),
    Rule(
        "spec.router.resources",
        _within("self"),
        "spec.router.resources",
        "spec.router.resources.requests must not exceed spec.router.resources.limits",
        of_resources("spec.router.resources", _requests_within_limits),
    ),
)


def _duration_rule(setting: Setting) -> Rule:
    """What a router takes: others would be refused by each pod of the routers, at its start."""
    record, _, name = f"spec.router.{setting.path}".rpartition(".")
    field, most = f"{record}.{name}", f"{MAX_DURATION_S}s"

    def holds(resource: Mapping[str, Any]) -> bool:
        value: Any = reduce(getitem, field.split("."), resource)  # Any: the schema makes it a text
        return bool(re.match(DURATION, value) and setting.kind.from_field(value) <= MAX_DURATION_S)

    cel = f"!has(self.{name}) || self.{name}.matches('{DURATION}') && duration(self.{name}) <= duration('{most}')"
    message = f"{field} must be a whole number and a unit, such as 500ms, 60s, 2m or 1h, and at most {most}"
    return Rule(record, cel, field, message, holds)


RULES += POD_RULES
RULES += tuple(_duration_rule(setting) for setting in SETTINGS.values() if isinstance(setting.kind, Duration))

_DAY = f"{MAX_DURATION_S // 3600}h"


def _day_rule(record: str, name: str) -> Rule:
    """A duration of at most a day, or the word `never`."""

    def holds(resource: Mapping[str, Any]) -> bool:
        value = resource["spec"][record].get(name, "never")
        return bool(value == "never" or seconds(value) <= MAX_DURATION_S)

    field = f"spec.{record}.{name}"
    cel = f"!has(self.{name}) || !self.{name}.matches('{DURATION}') || duration(self.{name}) <= duration('{_DAY}')"
    return Rule(f"spec.{record}", cel, field, f"{field} must be at most {_DAY}", holds)


RULES += (*(_day_rule("disruption", name) for name in DISRUPTION), _day_rule("scheduling", "gangBackoffAfter"))


def _stem(resource: Mapping[str, Any]) -> str:
    """The name without a forbidden suffix, so that only one of the two rules about names fails."""
    name = str(resource["metadata"]["name"])
    for ending in ("-ranks", "-leaders", "-router"):
        name = name.removesuffix(ending)
    return name
