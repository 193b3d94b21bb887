"""InferenceService octavo.dev/v1alpha1 as frozen dataclasses.

`parse` takes the resource's JSON from a file, `parse_stored` from the API server, whose CRD may be of a newer release.
They fill in the defaults of the schema, check its bounds and rules, and raise SpecError with the path of the field.
Bounds and defaults stand in schema.py, and of the routers' settings in octavo.shared.router_settings, alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.operator.api.accelerators import device
from octavo.operator.api.fields import seconds
from octavo.operator.api.rules import RULES
from octavo.operator.api.schema import API_VERSION, KIND, service_schema
from octavo.operator.api.schemas.placement import DISRUPTION
from octavo.operator.api.validate import SpecError, Steps, Unknown, complete
from octavo.shared.router_settings import RouterSettings, from_spec
from octavo.shared.setting_kinds import Duration

__all__ = ["API_VERSION", "KIND", "InferenceService", "Spec", "SpecError", "Unknown", "parse", "parse_stored"]

Json = Mapping[str, Any]  # Any: Kubernetes JSON, passed on as it came
MOST_SHOWN = 20  # unknown fields in a message


@dataclass(frozen=True, slots=True)
class Model:
    uri: str
    served_name: str
    dtype: str
    context_length: int | None


@dataclass(frozen=True, slots=True)
class Parallelism:
    tensor: int  # ranks of a stage
    pipeline: int  # stages


@dataclass(frozen=True, slots=True)
class Accelerator:
    resource: str
    per_pod: int  # ranks of a pod
    node_selector: Mapping[str, str]
    tolerations: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Engine:
    max_batch_tokens: int | None
    max_requests: int | None
    token_interval_s: float | None
    kv_cache_memory: str | None  # a Kubernetes quantity
    prefix_caching: bool
    prepare_sleep: bool


@dataclass(frozen=True, slots=True)
class RouterService:
    type: str
    port: int
    grpc_port: int
    annotations: Mapping[str, str]
    load_balancer_class: str | None
    load_balancer_source_ranges: tuple[str, ...]
    external_traffic_policy: str | None


@dataclass(frozen=True, slots=True)
class ApiKeys:
    secret_name: str
    key: str  # entry of the Secret


@dataclass(frozen=True, slots=True)
class Router:
    replicas: int
    settings: RouterSettings
    api_keys: ApiKeys | None
    service: RouterService
    resources: Json


@dataclass(frozen=True, slots=True)
class Rollout:
    max_surge: int
    max_unavailable: int
    progress_deadline_s: float
    on_failure: str  # pause or rollback
    history_limit: int


@dataclass(frozen=True, slots=True)
class Disruption:
    """As in spec.disruption."""

    grace_s: int
    not_ready_s: int
    node_lost_s: int
    surges: bool  # onDrain is surge


@dataclass(frozen=True, slots=True)
class Scheduling:
    """backoff_after_s: inf is never; None: the default, which depends on the cluster."""

    backoff_after_s: float | None


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """clients: None is the default. Peers as a NetworkPolicy has them."""

    managed: bool
    clients: tuple[Json, ...] | None
    metrics: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    model: Model
    replicas: int
    parallelism: Parallelism
    accelerator: Accelerator
    engine: Engine
    router: Router
    resources: Json
    rollout: Rollout
    disruption: Disruption
    scheduling: Scheduling
    network_policy: NetworkPolicy
    paused: bool
    restart_at: str | None
    image: str | None

    @property
    def pods(self) -> int:
        """Number of pods of a group."""
        return self.parallelism.tensor * self.parallelism.pipeline // self.accelerator.per_pod


@dataclass(frozen=True, slots=True)
class InferenceService:
    """One resource. `raw` is its spec with all defaults filled in, as JSON. `unknown`: what this release does not know
    of it, and leaves out."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: Spec
    raw: Json
    status: Json  # as last written
    unknown: tuple[Unknown, ...] = ()

    @property
    def unknown_fields(self) -> str:
        """The first of them in words; "" if there are none."""
        more = len(self.unknown) - MOST_SHOWN
        return ", ".join(one.shown for one in self.unknown[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")

    def has_unknown(self, *steps: str | int) -> bool:
        """True if there is an unknown field there or below."""
        return _any_below(self.unknown, steps)


def parse(resource: Json) -> InferenceService:
    """Read one InferenceService of a file. Raises SpecError, whose text starts with the path of the field."""
    return _parse(resource, None)


def parse_stored(resource: Json) -> InferenceService:
    """Read one InferenceService of the API server. Fields that this release does not know, and optional ones with a
    value that their enum does not have, count as absent, and so do peers of spec.networkPolicy that have some. Raises
    SpecError as `parse`."""
    return _parse(resource, [])


def _parse(resource: Json, unknown: list[Unknown] | None) -> InferenceService:
    if resource.get("apiVersion") != API_VERSION or resource.get("kind") != KIND:
        found = f"{resource.get('apiVersion')}/{resource.get('kind')}"
        raise SpecError("kind", f"expected {API_VERSION} {KIND}, found {found}")
    desired = {key: value for key, value in resource.items() if key != "status"}
    whole = complete(service_schema(), desired, unknown)
    if "name" not in whole["metadata"]:
        raise SpecError("metadata.name", "is required")
    for rule in RULES:
        if not rule.holds(whole):
            raise SpecError(rule.field, rule.message)
    metadata = resource["metadata"]
    return InferenceService(
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        spec=_spec(whole["spec"], metadata["name"], unknown or ()),
        raw=whole["spec"],
        status=resource.get("status") or {},
        unknown=tuple(unknown or ()),
    )


def _spec(spec: Json, name: str, unknown: Sequence[Unknown]) -> Spec:
    model, accelerator, engine = spec["model"], spec["accelerator"], spec["engine"]
    parallelism, memory = spec["parallelism"], engine.get("kvCacheMemory")
    interval = engine.get("tokenInterval")
    return Spec(
        model=Model(model["uri"], model.get("servedName") or name, model["dtype"], model.get("contextLength")),
        replicas=spec["replicas"],
        parallelism=Parallelism(parallelism["tensor"], parallelism["pipeline"]),
        accelerator=Accelerator(
            accelerator["resource"],
            accelerator.get("perPod", parallelism["tensor"]),
            accelerator["nodeSelector"],
            tuple(accelerator["tolerations"]),
        ),
        engine=Engine(
            engine.get("maxBatchTokens"),
            engine.get("maxRequests"),
            None if interval is None else Duration().from_field(interval),
            None if memory is None else str(memory),
            engine["prefixCaching"],
            engine["prepareSleep"],
        ),
        router=_router(spec["router"]),
        resources=spec.get("resources", device(spec).resources),
        rollout=_rollout(spec["rollout"]),
        disruption=_disruption(spec["disruption"]),
        scheduling=_scheduling(spec["scheduling"]),
        network_policy=_network_policy(spec["networkPolicy"], unknown),
        paused=spec["paused"],
        restart_at=spec.get("restartAt"),
        image=spec.get("image"),
    )


def _rollout(rollout: Json) -> Rollout:
    return Rollout(
        rollout["maxSurge"],
        rollout["maxUnavailable"],
        Duration().from_field(rollout["progressDeadline"]),
        rollout["onFailure"],
        rollout["historyLimit"],
    )


def _disruption(disruption: Json) -> Disruption:
    grace_s, not_ready_s, node_lost_s = (seconds(disruption[key]) for key in DISRUPTION)
    return Disruption(grace_s, not_ready_s, node_lost_s, disruption["onDrain"] == "surge")


def _scheduling(scheduling: Json) -> Scheduling:
    after = scheduling.get("gangBackoffAfter")
    return Scheduling(None if after is None else math.inf if after == "never" else seconds(after))


def _network_policy(policy: Json, unknown: Sequence[Unknown]) -> NetworkPolicy:
    clients = None if "clients" not in policy else _known_peers(policy, "clients", unknown)
    return NetworkPolicy(policy["mode"] == "managed", clients, _known_peers(policy, "metrics", unknown))


def _known_peers(policy: Json, field: str, unknown: Sequence[Unknown]) -> tuple[Json, ...]:
    """The peers that are wholly known: the rest of a selector selects more than the whole."""
    at = ("spec", "networkPolicy", field)
    return tuple(peer for index, peer in enumerate(policy[field]) if not _any_below(unknown, (*at, index)))


def _any_below(unknown: Sequence[Unknown], steps: Steps) -> bool:
    return any(one.steps[: len(steps)] == steps for one in unknown)


def _router(router: Json) -> Router:
    service, keys = router["service"], router.get("apiKeys")
    return Router(
        replicas=router["replicas"],
        settings=from_spec(router),
        api_keys=None if keys is None else ApiKeys(keys["secretName"], keys["key"]),
        service=RouterService(
            service["type"],
            service["port"],
            service["grpcPort"],
            service["annotations"],
            service.get("loadBalancerClass"),
            tuple(service["loadBalancerSourceRanges"]),
            service.get("externalTrafficPolicy"),
        ),
        resources=router["resources"],
    )
