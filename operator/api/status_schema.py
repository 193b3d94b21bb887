"""The schema of an InferenceService's status."""

from typing import Any

Json = dict[str, Any]  # Any: JSON

CONDITIONS = ("Ready", "Progressing", "ModelLoaded", "RouterReady", "Degraded")


def status_schema() -> Json:
    """What the operator reports; nobody else writes it."""
    return {
        "type": "object",
        "description": "What the operator last saw.",
        "properties": {
            "observedGeneration": _number("The metadata.generation that this status speaks of.", "int64"),
            "conditions": _conditions(),
            "replicas": _number("Groups that exist, of any revision, without those that are going."),
            "readyReplicas": _number("Groups that serve."),
            "updatedReplicas": _number("Groups of the wished revision."),
            "desiredReplicas": _number("Groups that are wished: spec.replicas, or 0 while paused."),
            "selector": _text("Label selector of the leader pods, one for each group; for the scale subresource."),
            "url": _text("Where clients inside the cluster reach the service; the OpenAI API is under /v1."),
            "revision": _text("Hash of the fields of the spec that shape worker pods."),
            "model": {
                "type": "object",
                "description": "The model as a group loaded it.",
                "properties": {
                    "architecture": _text("Architecture named by the model's config.json."),
                    "sizeBytes": _number("Size of the weights in bytes.", "int64"),
                    "contextLength": _number("Most tokens of prompt and answer together."),
                    "note": _text("What was adjusted, such as a lowered context length."),
                },
            },
            "groups": {
                "type": "array",
                "description": "One entry for each group.",
                "maxItems": 2000,
                "items": _group(),
            },
        },
    }


def _group() -> Json:
    return {
        "type": "object",
        "description": "One group: the pods that hold one copy of the model.",
        "required": ["index"],
        "properties": {
            "index": _number("Number of the group; its StatefulSet is NAME-INDEX."),
            "revision": _text("Revision that it was made from."),
            "state": _text("Pending, Starting, Fetching, Loading, Warming, Serving, Draining or Failed."),
            "progress": _number("Progress of fetching or loading in percent."),
            "collective": _text(
                "How the ranks of a stage reach each other, as they chose: gloo. Absent where it has one."
            ),
            "activations": _text("How stages hand on to the next, as they chose: grpc. Absent where there is one."),
            "restarts": _number("Lives of its ranks or containers that ended by a failure."),
            "lastFailure": {
                "type": "object",
                "description": "Why the last of them ended.",
                "properties": {
                    "pod": _text("Pod in which it happened."),
                    "rank": _number("Rank that failed; -1 if it was none."),
                    "reason": _text("Cause in one word."),
                    "exitCode": _number("Exit code of the process; negative: its signal."),
                    "message": _text("What happened and to what."),
                    "time": {"type": "string", "format": "date-time", "description": "When."},
                },
            },
        },
    }


def _conditions() -> Json:
    return {
        "type": "array",
        "description": "Ready: requests are answered. Progressing: groups are being made or replaced. ModelLoaded: a "
        "group holds the model. RouterReady: a router accepts requests. Degraded: something is broken, or fewer groups "
        "serve than are wished, from the first that serves on: see its reason.",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One condition.",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "description": "Which condition.", "maxLength": 316},
                "status": {"type": "string", "description": "Whether it holds.", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": _number("The metadata.generation that it speaks of.", "int64"),
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When status last changed.",
                },
                "reason": {"type": "string", "description": "Cause in one word.", "maxLength": 1024},
                "message": {
                    "type": "string",
                    "description": "The cause, the object and what helps.",
                    "maxLength": 32768,
                },
            },
        },
    }


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str, form: str = "int32") -> Json:
    return {"type": "integer", "format": form, "description": description}
