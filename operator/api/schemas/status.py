"""Schema of an InferenceService's status."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]  # Any: JSON

# Type -> meaning, in the order of status.conditions. operator/planning/conditions has a module for each.
CONDITIONS: Mapping[str, str] = {
    "Ready": "requests are answered",
    "Progressing": "groups or routers are being created or replaced",
    "ModelLoaded": "at least one group has loaded the model",
    "RouterReady": "at least one router accepts requests, and has a valid API key where keys are required",
    "UpToDate": "all desired groups and routers of the observed generation serve, and no earlier ones are left",
    "Degraded": "there is a failure, or a group that has served does not and fewer serve than desired",
    "SpecSupported": "the operator knows all fields of the spec; it leaves out fields of a newer release",
    "Reconciled": "the API server holds all objects of the service as desired",
    "Reconciling": "the service is on its way to the desired state (kstatus)",
    "Stalled": "the desired state cannot be reached without a change of the spec or of the cluster (kstatus)",
}


def status_schema() -> Json:
    """Schema of status, which only the operator writes."""
    return {
        "type": "object",
        "description": "Observed state of the service.",
        "default": {"observedGeneration": -1},  # kstatus takes a new object without this field for done
        "properties": {
            "ready": _text("Number of groups that serve, and of desired groups, such as 1/2."),
            "reason": _text(
                "Why the service is as it is: the reason of Degraded if it is true, else of Ready if it is false, else "
                "of Progressing if it is true, else of Ready."
            ),
            "observedGeneration": _number(
                "metadata.generation that this status was computed from; -1 before the first.", "int64"
            ),
            "conditions": _conditions(),
            "replicas": _number("Number of groups of any revision, excluding groups that are being deleted."),
            "readyReplicas": _number("Number of groups that serve."),
            "updatedReplicas": _number("Number of groups of the desired revision, which is `revision`."),
            "desiredReplicas": _number("Desired number of groups: spec.replicas, or 0 while paused."),
            "selector": _text("Label selector of the leader pods, one per group, for the scale subresource."),
            "url": _text("URL of the service inside the cluster. The OpenAI API is under /v1."),
            "revision": _text("Hash of the spec fields that determine the worker pods: the desired revision."),
            "rollback": {
                "type": "object",
                "description": "Present while the groups are rolled back: the desired revision made no progress within "
                "spec.rollout.progressDeadline, and spec.rollout.onFailure is rollback.",
                "properties": {
                    "revision": _text("Revision that the groups were rolled back to."),
                    "reason": _text("Reason in CamelCase why groups of the desired revision did not serve."),
                    "message": _text("Details of the reason."),
                    "time": {"type": "string", "format": "date-time", "description": "Time of the rollback."},
                },
            },
            "model": {
                "type": "object",
                "description": "The model that most serving groups serve; if none serves, the last one.",
                "properties": {
                    "uri": _text("Location of the model: spec.model.uri of these groups."),
                    "architecture": _text("Architecture from the model's config.json."),
                    "sizeBytes": _number("Size of the weights in bytes.", "int64"),
                    "contextLength": _number("Maximum number of tokens of prompt and answer together."),
                    "digest": _text(
                        "Hash of the model: config.json, tokenizer, template, and the values of the weights. Routers "
                        "log it for each group."
                    ),
                    "note": _text("Adjustments, such as a reduced context length."),
                },
            },
            "groups": {
                "type": "array",
                "description": "One entry per group.",
                "maxItems": 2000,
                "items": _group(),
            },
        },
    }


def _group() -> Json:
    return {
        "type": "object",
        "description": "A group: the pods that hold one copy of the model.",
        "required": ["index"],
        "properties": {
            "index": _number("Index of the group. Its StatefulSet is NAME-INDEX."),
            "revision": _text("Revision of the group."),
            "state": _text("Pending, Starting, Fetching, Loading, Warming, Serving, Asleep, Draining or Failed."),
            "progress": _number("Progress of fetching or loading, in percent."),
            "collective": _text(
                "Transport between the ranks of a stage: gloo, peers (memory of GPUs of one host) or nccl. Absent if a "
                "stage has one rank."
            ),
            "activations": _text(
                "Transport of activations between stages: grpc or peers (memory of GPUs of one host). Absent if there "
                "is one stage."
            ),
            "release": _text("Release of the group's workers, such as 0.1.0."),
            "restarts": _number("Number of incarnations and containers of the group that ended by a failure."),
            "lastFailure": {
                "type": "object",
                "description": "The most recent of these failures.",
                "properties": {
                    "pod": _text("Name of the pod that failed."),
                    "rank": _number("Rank that failed; -1 if the failure was not of a rank."),
                    "reason": _text("Reason in CamelCase."),
                    "exitCode": _number("Exit code of the process; a negative number is a signal."),
                    "message": _text("Details of the failure."),
                    "time": {"type": "string", "format": "date-time", "description": "Time of the failure."},
                },
            },
        },
    }


def _conditions() -> Json:
    return {
        "type": "array",
        "description": " ".join(f"{kind}: {meaning}." for kind, meaning in CONDITIONS.items()),
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "A condition.",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "description": "Type of the condition.", "maxLength": 316},
                "status": {
                    "type": "string",
                    "description": "Status of the condition.",
                    "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": _number(
                    "metadata.generation that the condition holds for. Ready, ModelLoaded and RouterReady name an "
                    "earlier one while they are true by its pods.",
                    "int64",
                ),
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Time of the last change of status.",
                },
                "reason": {"type": "string", "description": "Reason in CamelCase.", "maxLength": 1024},
                "message": {
                    "type": "string",
                    "description": "The cause, the affected object and the remedy.",
                    "maxLength": 32768,
                },
            },
        },
    }


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str, form: str = "int32") -> Json:
    return {"type": "integer", "format": form, "description": description}
