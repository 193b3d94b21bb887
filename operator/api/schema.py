"""Schema of InferenceService: the meaning, unit, bound and default of each field.

`octavo crd` prints it as the CRD, `parse` checks files against it, `kubectl explain infsvc.spec` shows it.
"""

from copy import deepcopy
from functools import cache
from typing import Any

from octavo.operator.api import fields
from octavo.operator.api.accelerators import DEVICES, GPU, LARGE_GPU_GIB
from octavo.operator.api.rules import RULES
from octavo.operator.api.schemas.exposure import network_policy
from octavo.operator.api.schemas.placement import accelerator, disruption, parallelism, scheduling
from octavo.operator.api.schemas.resource import resources, shown
from octavo.operator.api.schemas.router import router
from octavo.operator.api.schemas.status import status_schema
from octavo.shared import model_uri

API_VERSION = "octavo.dev/v1alpha1"
KIND = "InferenceService"

Json = dict[str, Any]  # Any: JSON


@cache
def service_schema() -> Json:
    """The openAPIV3Schema of the whole resource. Cached: callers must not change it."""
    return fields.record(
        "An InferenceService serves one language model with routers, which provide the OpenAI API, and groups of "
        "worker pods, which each hold a copy of the model.",
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
    """`service_schema` with the CEL rules as x-kubernetes-validations."""
    schema = deepcopy(service_schema())
    for rule in RULES:
        node = schema
        for step in rule.at.split(".") if rule.at else ():
            node = node["properties"][step]
        node.setdefault("x-kubernetes-validations", []).append({"rule": rule.cel, "message": rule.message})
    return schema


def _worker_resources() -> Json:
    """Schema of spec.resources. Without a default in the schema, since the default depends on the device."""
    on_cpus, on_gpus = (shown(DEVICES[name].resources) for name in ("cpu", GPU))
    return resources(
        "Resources of each worker container, in addition to the GPUs of spec.accelerator. Default on CPUs: "
        f"{on_cpus}; on GPUs: {on_gpus}."
    )


def _spec() -> Json:
    return fields.record(
        "Desired state of the service.",
        {
            "model": _model(),
            "replicas": fields.integer(
                "Number of groups. Each group is an independent copy of the model. `kubectl scale` sets this field.",
                0,
                999,
                1,
            ),
            "parallelism": parallelism(),
            "accelerator": accelerator(),
            "engine": _engine(),
            "router": router(),
            "resources": _worker_resources(),
            "rollout": _rollout(),
            "disruption": disruption(),
            "scheduling": scheduling(),
            "networkPolicy": network_policy(),
            "paused": fields.flag(
                "true deletes all groups but keeps the InferenceService, its address and its routers, which answer "
                "503.",
                False,
            ),
            "restartAt": fields.text(
                "Set a new value, such as the current time, to replace the groups and routers one by one with the "
                "operator's current defaults, including images.",
                64,
                minLength=1,
            ),
            "image": fields.text(
                "Worker image. Default: the operator's. Changing the image starts a rollout of the groups.",
                512,
                minLength=1,
                pattern=r"^\S+$",
            ),
        },
        required=["model"],
    )


def _model() -> Json:
    return fields.record(
        "The model to serve.",
        {
            "uri": fields.text(
                f"Location of the model: {model_uri.described()}. The folder holds config.json, safetensors and the "
                "tokenizer.",
                512,
                minLength=1,
            ),
            "servedName": fields.text(
                "Model name in client requests. Default: metadata.name.",
                128,
                minLength=1,
                pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$",
            ),
            "dtype": fields.text(
                "Number format of weights and computation. auto: the checkpoint's format on GPUs, float32 on CPUs. "
                "CPUs support only float32.",
                16,
                enum=list(DEVICES[GPU].dtypes),
                default="auto",
            ),
            "contextLength": fields.integer(
                "Maximum number of tokens of prompt and answer together. Default: the model's own, reduced if the KV "
                "cache cannot hold one such request; status.model.note then reports it.",
                16,
                10_485_760,
            ),
        },
        required=["uri"],
    )


def _engine() -> Json:
    return fields.record(
        "Scheduling and memory of each group's engine.",
        {
            "maxBatchTokens": fields.integer(
                "Maximum number of tokens per step. A larger number raises both throughput and the time between "
                "tokens. Default: "
                f"{DEVICES[GPU].max_batch_tokens} on GPUs, divided by the stages of a pipeline but at least "
                f"{DEVICES[GPU].least_batch_tokens}; {DEVICES['cpu'].max_batch_tokens} on CPUs.",
                16,
                1_048_576,
            ),
            "maxRequests": fields.integer(
                "Maximum number of concurrent requests per group. Default: "
                f"{DEVICES[GPU].max_requests} on GPUs of {LARGE_GPU_GIB} GiB or more, {DEVICES[GPU].few_requests} on "
                f"smaller ones, {DEVICES['cpu'].max_requests} on CPUs; at most parallelism.pipeline x maxBatchTokens.",
                1,
                4096,
            ),
            "tokenInterval": fields.duration(
                "Upper bound for the time between two tokens of a request while prompts of others are computed, e.g. "
                "50ms: steps are filled with prompts up to it. A short interval favours running requests, a long one "
                "(1s) throughput and the first tokens of waiting requests. Where decoding alone takes most of it, "
                "steps are up to a quarter longer than decoding. Default: requests that were running before long "
                "prompts came take about twice as long per token beside them; where most requests wait, or have come "
                "together, prompts are computed in full steps."
            ),
            "kvCacheMemory": fields.amount(
                "Memory for the KV cache of each rank, e.g. 512Mi, on its GPU or else in the container. Default: on "
                "GPUs the memory that weights and steps leave free; on CPUs a quarter of the container's memory limit, "
                "divided by the number of ranks per pod."
            ),
            "prefixCaching": fields.flag(
                "Keep the KV cache of earlier prompts and reuse it for prompts with the same prefix.", True
            ),
            "prepareSleep": fields.flag(
                "Keep a copy of the weights in pinned memory of the host from the start, so that a first `octavo "
                "sleep` is as fast as later ones, which have it anyhow. The pod's memory limit must have room for it. "
                "GPUs only.",
                False,
            ),
        },
        default={},
    )


def _rollout() -> Json:
    return fields.record(
        "How groups are replaced when the spec changes. By default a new group serves before an old one is drained.",
        {
            "maxSurge": fields.integer("Maximum number of groups above spec.replicas during a rollout.", 0, 999, 1),
            "maxUnavailable": fields.integer(
                "Maximum number of the desired groups that may be unavailable during a rollout. Set to 1, with "
                "maxSurge 0, if the cluster has no room for another group: old groups are then deleted first.",
                0,
                999,
                0,
            ),
            "progressDeadline": fields.duration(
                "Time within which a further group of the new revision must serve, e.g. 90s, 30m or 2h. Otherwise the "
                "rollout has failed: Progressing is False with the reason DeadlineExceeded.",
                default="30m",
            ),
            "onFailure": fields.text(
                "What follows when progressDeadline is exceeded. pause: the groups stay as they are. rollback: the "
                "groups return to the last revision that served, until a change of the spec makes another revision.",
                16,
                enum=["pause", "rollback"],
                default="pause",
            ),
            "historyLimit": fields.integer(
                "Number of earlier revisions whose pod template is kept, each in a ControllerRevision. Revisions in "
                "use are always kept.",
                0,
                100,
                5,
            ),
        },
        default={"maxSurge": 1, "maxUnavailable": 0},
    )
