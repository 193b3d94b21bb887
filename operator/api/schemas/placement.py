"""Schema of a group's placement: ranks, pods, nodes and accelerators, and when pods give their nodes up."""

from octavo.operator.api import fields
from octavo.operator.api.accelerators import DEVICES, GPU
from octavo.operator.api.fields import Json
from octavo.operator.api.pod_rules import KEY_PATTERN, MAX_KEY, MAX_VALUE, VALUE_PATTERN
from octavo.shared.limits import MAX_RANKS

DISRUPTION = {"gracePeriod": "120s", "notReadyAfter": "5m", "nodeLostAfter": "10s"}  # durations, and their defaults


def parallelism() -> Json:
    """Schema of spec.parallelism."""
    return fields.record(
        "How one copy of the model is divided among ranks, which are processes with one device each. A group has "
        f"tensor x pipeline ranks (at most {MAX_RANKS}), in tensor x pipeline / spec.accelerator.perPod pods that "
        "start, serve and fail together. If the model cannot be divided this way, the workers refuse it and the status "
        "gives the reason.",
        {
            "tensor": fields.integer(
                "Tensor-parallel ranks: each holds a slice of every layer, and the ranks sum their results several "
                "times per layer. Shortens each step and divides the memory for weights and KV cache. Needs a fast "
                "connection, preferably within one pod.",
                1,
                MAX_RANKS,
                1,
            ),
            "pipeline": fields.integer(
                "Pipeline stages: each stage holds a range of layers on tensor ranks, in its own pods, and sends "
                "activations to the next stage. Divides the memory and raises throughput, but does not speed up a "
                "single request. An ordinary network is sufficient.",
                1,
                MAX_RANKS,
                1,
            ),
        },
        default={"tensor": 1, "pipeline": 1},
    )


def accelerator() -> Json:
    """Schema of spec.accelerator."""
    toleration = fields.record(
        "A toleration, as in a pod's spec.",
        {
            "key": fields.text(
                "Key of the taint. Empty with operator Exists matches all taints.", MAX_KEY, pattern=KEY_PATTERN
            ),
            "operator": fields.text("How the value is compared. Exists needs no value.", 16, enum=["Exists", "Equal"]),
            "value": fields.text("Value of the taint.", MAX_VALUE, pattern=VALUE_PATTERN),
            "effect": fields.text(
                "Effect of the taint. Empty matches all effects.",
                32,
                enum=["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
            ),
            "tolerationSeconds": {
                "type": "integer",
                "format": "int64",
                "description": "Seconds that a pod stays on a node with a NoExecute taint.",
                "minimum": 0,
                "maximum": 86_400_000,
            },
        },
    )
    return fields.record(
        "Devices and nodes of the workers.",
        {
            "resource": fields.text(
                f"cpu: workers run on CPUs. {GPU}: each worker pod requests one GPU per rank from NVIDIA's device "
                "plugin (Hopper: H100, H200); all ranks of a stage share a pod.",
                64,
                enum=list(DEVICES),
                default="cpu",
            ),
            "perPod": fields.integer(
                "Ranks per worker pod; must divide spec.parallelism.tensor. Default: all tensor ranks of a stage. A "
                "smaller number spreads a stage over several pods, for small nodes. spec.resources applies to the "
                "whole pod, whatever its number of ranks.",
                1,
                MAX_RANKS,
            ),
            "nodeSelector": fields.mapping(
                "Labels that a node must have to run worker pods.",
                fields.text("Value of the label.", MAX_VALUE, pattern=VALUE_PATTERN),
                32,
                {},
            ),
            "tolerations": {
                "type": "array",
                "description": "Tolerations of the worker pods.",
                "items": toleration,
                "maxItems": 32,
                "default": [],
            },
        },
        default={},
    )


def disruption() -> Json:
    """Schema of spec.disruption."""
    return fields.record(
        "When pods of groups and routers leave their nodes. A change replaces groups and routers, but for onDrain.",
        {
            "gracePeriod": fields.long_duration(
                "Time that a pod has to finish its requests when it is deleted, drained or replaced: its "
                "terminationGracePeriodSeconds. Answers that take longer are cut. At most 24h.",
                DISRUPTION["gracePeriod"],
            ),
            "notReadyAfter": fields.long_duration(
                "Time that pods stay on a node that reports itself not ready, for example while its container runtime "
                "or network plugin restarts. At most 24h.",
                DISRUPTION["notReadyAfter"],
            ),
            "nodeLostAfter": fields.long_duration(
                "Time that pods stay on a node that Kubernetes has marked unreachable, after about 40s without a "
                "heartbeat. They are then deleted, 20s later by force, and created on another node. At most 24h.",
                DISRUPTION["nodeLostAfter"],
            ),
            "onDrain": fields.text(
                "What happens to groups on a node that is drained. evict: one pod that serves may be evicted at a "
                "time, and its group serves again once the pod has been created on another node. surge: no group that "
                "serves may be evicted. When its node is cordoned, another group is created, and the group is deleted "
                "once that one serves. If it does not within spec.rollout.progressDeadline, groups may be evicted as "
                "with evict. Needs room for another group, and an operator that may read nodes.",
                8,
                enum=["evict", "surge"],
                default="evict",
            ),
        },
        default={},
    )


def scheduling() -> Json:
    """Schema of spec.scheduling."""
    return fields.record(
        "How groups of several pods wait for their nodes.",
        {
            "gangBackoffAfter": fields.long_duration(
                "Time after which a group gives its nodes back, for a while, if some of its pods are unschedulable and "
                "none was scheduled in the meantime; a fifth of it if two groups of the service wait. never: a group "
                "keeps its nodes. Default: 5m; never while an event of an unschedulable pod is of the cluster "
                "autoscaler or Karpenter. At most 24h.",
                also="never",
            ),
        },
        default={},
    )
