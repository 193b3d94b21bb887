"""The schema of how a group is spread over ranks, pods and nodes, and of what it computes on."""

from octavo.operator.api import fields
from octavo.operator.api.accelerators import DEVICES, GPU
from octavo.operator.api.fields import Json
from octavo.operator.api.rules import MOST_RANKS


def parallelism() -> Json:
    """spec.parallelism."""
    return fields.record(
        "How one copy of the model is spread over ranks: processes that compute on a device each. A group has tensor x "
        f"pipeline ranks (at most {MOST_RANKS}), in tensor x pipeline / spec.accelerator.perPod pods that start, serve "
        "and fail together. A model that cannot be split so is refused by the workers, and the status says why.",
        {
            "tensor": fields.integer(
                "Ranks that share each layer: every one holds a slice of it, and they add up their parts several times "
                "a layer. It shortens each step and divides the memory of weights and KV cache, and asks for a fast "
                "connection: best within one pod.",
                1,
                MOST_RANKS,
                1,
            ),
            "pipeline": fields.integer(
                "Stages: each holds a run of the layers on tensor ranks, in pods of its own, and hands on to the next. "
                "It divides the memory and raises throughput, not the speed of one request; a plain network will do.",
                1,
                MOST_RANKS,
                1,
            ),
        },
        default={"tensor": 1, "pipeline": 1},
    )


def accelerator() -> Json:
    """spec.accelerator."""
    toleration = fields.record(
        "A taint that pods accept, as in a pod.",
        {
            "key": fields.text("Key of the taint; empty with operator Exists matches all.", 316),
            "operator": fields.text("How value is compared.", 16, enum=["Exists", "Equal"]),
            "value": fields.text("Value of the taint.", 63),
            "effect": fields.text(
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
    return fields.record(
        "What the workers compute on, and where.",
        {
            "resource": fields.text(
                f"cpu: the workers compute on CPUs. {GPU}: each worker pod gets a GPU for each of its ranks from "
                "NVIDIA's device plugin (Hopper: H100, H200); the ranks of a stage share a pod.",
                64,
                enum=list(DEVICES),
                default="cpu",
            ),
            "perPod": fields.integer(
                "Ranks of one worker pod; it divides spec.parallelism.tensor. Default: all tensor ranks of a stage. "
                "Fewer spread a stage over several pods, where nodes are small. spec.resources are those of the whole "
                "pod, however many ranks it has.",
                1,
                MOST_RANKS,
            ),
            "nodeSelector": fields.mapping(
                "Labels that a node must have to run a worker.", fields.text("Value of the label.", 63), 32, {}
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
