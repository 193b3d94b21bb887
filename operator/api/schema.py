"""The schema of InferenceService: each field with its meaning, unit, bound and default, written once.

`octavo crd` prints it as the CRD, `parse` checks files against it, `kubectl explain infsvc.spec` shows it.
"""

from copy import deepcopy
from functools import cache
from typing import Any

from octavo.operator.api import fields
from octavo.operator.api.accelerators import DEVICES, GPU
from octavo.operator.api.placement_schema import accelerator, parallelism
from octavo.operator.api.resource_schema import resources, shown
from octavo.operator.api.router_schema import router
from octavo.operator.api.rules import RULES
from octavo.operator.api.status_schema import status_schema

API_VERSION = "octavo.dev/v1alpha1"
KIND = "InferenceService"

Json = dict[str, Any]  # Any: JSON


@cache
def service_schema() -> Json:
    """The openAPIV3Schema of the whole resource. Made once: not to be written into."""
    return fields.record(
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


def _worker_resources() -> Json:
    """Without a default in the schema: it is another on each device."""
    on_cpus, on_gpus = (shown(DEVICES[name].resources) for name in ("cpu", GPU))
    return resources(
        "Resources of each worker container, beside the GPU that spec.accelerator asks for. Default on CPUs: "
        f"{on_cpus}; on GPUs: {on_gpus}."
    )


def _spec() -> Json:
    return fields.record(
        "The wished service.",
        {
            "model": _model(),
            "replicas": fields.integer(
                "Number of groups, each a copy of the model that serves on its own. `kubectl scale` sets it.",
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
            "paused": fields.flag(
                "true removes all groups and keeps the object, its address and its routers, which answer 503.", False
            ),
            "restartAt": fields.text(
                "Any new value, by custom the present time, replaces the groups and routers one by one, with the "
                "operator's present defaults (images among them).",
                64,
                minLength=1,
            ),
            "image": fields.text(
                "Worker image, instead of the operator's default. A change rolls the groups.",
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
                "Where the model is: bundled://smollm2-135m-instruct (in the worker image), pvc://CLAIM/PATH (a folder "
                "of a PersistentVolumeClaim, mounted read-only), or file:///PATH (a folder of the node, if the operator"
                " was started with --allow-host-path). It holds config.json, safetensors and the tokenizer.",
                512,
                minLength=1,
            ),
            "servedName": fields.text(
                "Name by which clients ask for the model. Default: metadata.name.",
                128,
                minLength=1,
                pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$",
            ),
            "dtype": fields.text(
                "Number format of weights and computation. auto: the checkpoint's own on GPUs, float32 on CPUs, which "
                "compute in nothing else.",
                16,
                enum=list(DEVICES[GPU].dtypes),
                default="auto",
            ),
            "contextLength": fields.integer(
                "Most tokens of prompt and answer together. Default: the model's own, lowered (and said so in the "
                "status) when the KV cache cannot hold one such request.",
                16,
                10_485_760,
            ),
        },
        required=["uri"],
    )


def _engine() -> Json:
    return fields.record(
        "How the engine of each group schedules.",
        {
            "maxBatchTokens": fields.integer(
                "Most tokens of one step. More raises throughput and the time between two tokens. Default: "
                f"{DEVICES[GPU].max_batch_tokens} on GPUs, divided by the stages of a pipeline but at least "
                f"{DEVICES[GPU].least_batch_tokens}; {DEVICES['cpu'].max_batch_tokens} on CPUs.",
                16,
                1_048_576,
            ),
            "maxRequests": fields.integer(
                "Most requests that run at once in a group. Default: "
                f"{DEVICES[GPU].max_requests} on GPUs, {DEVICES['cpu'].max_requests} on CPUs.",
                1,
                4096,
            ),
            "kvCacheMemory": fields.amount(
                "Memory of the KV cache of each rank, e.g. 512Mi: of its GPU, else of the container. Default: on GPUs "
                "what the weights and a step leave of it, on CPUs a quarter of the container's memory limit, divided "
                "by the ranks of a pod."
            ),
            "prefixCaching": fields.flag(
                "Keep the KV of past prompts and reuse it for prompts that begin alike.", True
            ),
        },
        default={},
    )


def _rollout() -> Json:
    return fields.record(
        "How groups are replaced when the spec changes: a new one serves before an old one is drained.",
        {
            "maxSurge": fields.integer("How many groups there may be beyond replicas.", 0, 999, 1),
            "maxUnavailable": fields.integer(
                "How many of replicas may be missing. With maxSurge 0, for clusters without room, old groups go first.",
                0,
                999,
                0,
            ),
        },
        default={"maxSurge": 1, "maxUnavailable": 0},
    )
