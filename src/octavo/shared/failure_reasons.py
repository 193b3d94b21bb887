"""Reasons why a group fails: the words of `lastFailure.reason`, each with its remedy. PURE.

The worker reports a reason, the operator shows its advice beside the worker's message, and `octavo run` ends where a
restart cannot help.
"""

from enum import StrEnum
from typing import Self

_LOG = "see the pod's log"
_RESTARTS = "the group restarts automatically"


class FailureReason(StrEnum):
    """value: CamelCase, as the status has it. advice: what to do about it; follows the message, which says what
    happened to which object. restart_helps: False if each incarnation fails so until a user changes something."""

    advice: str
    restart_helps: bool

    def __new__(cls, value: str, advice: str, restart_helps: bool = True) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.advice = advice
        member.restart_helps = restart_helps
        return member

    MODEL_NOT_FOUND = "ModelNotFound", "check the model's URI, and the volume that holds it", False
    MODEL_INVALID = "ModelInvalid", "docs/models.md lists the models that are supported", False
    MODEL_UNREADABLE = "ModelUnreadable", "the worker's user must be able to read the model's files", False
    CONFIG_INVALID = "ConfigInvalid", "correct this setting", False
    OUT_OF_DEVICE_MEMORY = "OutOfDeviceMemory", "or use more ranks, a larger device or a smaller model", False
    KERNELS_MISSING = "KernelsMissing", "or use a worker image that was built with the kernels", False

    OOM_KILLED = "OOMKilled", "the limit counts the memory of all processes of the pod"
    START_FAILED = "StartFailed", "the pod or its node has reached a limit of memory, processes or open files"
    ADDRESS_UNAVAILABLE = "AddressUnavailable", "another process of the pod uses this address"
    LOAD_STALLED = "LoadStalled", "the storage of the model may hang"
    INVALID_STEP = "InvalidStep", "this is a bug of Octavo: please report it with the pod's log"

    SERVE_EXITED = "ServeExited", _LOG
    CORE_EXITED = "CoreExited", _LOG
    RANK_EXITED = "RankExited", _LOG
    SERVE_FAILED = "ServeFailed", _LOG
    CORE_FAILED = "CoreFailed", _LOG
    RANK_FAILED = "RankFailed", _LOG
    SERVE_STUCK = "ServeStuck", _RESTARTS
    CORE_STUCK = "CoreStuck", _RESTARTS
    RANK_STUCK = "RankStuck", _RESTARTS

    PEER_LOST = "PeerLost", _RESTARTS
    LEADER_LOST = "LeaderLost", _RESTARTS
    POD_REPLACED = "PodReplaced", _RESTARTS
    JOIN_REFUSED = "JoinRefused", "the pods of a group must be of one revision and see the same model"
    SUPERVISOR_LOST = "SupervisorLost", _RESTARTS
    SUPERVISOR_SILENT = "SupervisorSilent", _RESTARTS
    SUPERVISOR_FAILED = "SupervisorFailed", _LOG
    UNKNOWN = "Unknown", _LOG

    @classmethod
    def known(cls, text: str) -> "FailureReason | None":
        """The reason of this value; None for one that only a newer component knows."""
        return next((reason for reason in cls if reason.value == text), None)

    @classmethod
    def parse(cls, text: str) -> "FailureReason":
        """As `known`, and UNKNOWN for any other text."""
        return cls.known(text) or cls.UNKNOWN


def exited(process: str) -> FailureReason:
    """A process (serve, core or rank) ended without a report."""
    return FailureReason[f"{process.upper()}_EXITED"]


def failed(process: str) -> FailureReason:
    """A process ended by an error that has no reason of its own."""
    return FailureReason[f"{process.upper()}_FAILED"]


def stuck(process: str) -> FailureReason:
    """A process exists and does not go on."""
    return FailureReason[f"{process.upper()}_STUCK"]
