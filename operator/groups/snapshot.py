"""Observed state of one service: the input of `plan`, besides the service itself. No I/O.

Kubernetes objects are kept as JSON (`Object`). `observe` fills a Snapshot from its caches: objects with the label
`octavo.dev/service: NAME` *and* the service's uid as owner.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.shared.key_problem import KeyProblem

Object = Mapping[str, Any]  # Any: arbitrary Kubernetes JSON


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure that ended an incarnation of a group."""

    pod: str
    rank: int  # -1: not a rank
    reason: str  # CamelCase, e.g. ModelInvalid, OOMKilled, RankExited
    exit_code: int  # negative: the signal
    message: str
    time_s: float  # Unix time


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model as a group reports it."""

    digest: str = ""  # of its files, values of the weights included; empty until they are read
    architecture: str = ""
    size_bytes: int = 0
    context_length: int = 0
    note: str = ""  # e.g. why the context length was lowered


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The last answer of a group's pod 0 on its status port."""

    revision: str
    phase: str  # a name of proto Phase without its prefix, as STARTING, SERVING, ASLEEP or FAILED
    progress_percent: int = 0
    restarts: int = 0  # incarnations that ended by a failure
    last_failure: Failure | None = None
    model: ModelInfo | None = None
    collective: str = ""  # transport between the ranks of a stage: gloo, peers or nccl
    activations: str = ""  # transport between the stages: grpc or peers
    release: str = ""  # of the worker; "" of one that does not name it
    pod_uid: str = ""  # of the pod that answered: reports of deleted pods are ignored


@dataclass(frozen=True, slots=True)
class RouterKeys:
    """API keys as a router reports them. valid: it has a valid key. message: of the problem."""

    valid: bool
    problem: KeyProblem | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class RouterReport:
    """The last answer of a router pod on its health page; of one that is not ready only `skew` counts.

    unconnected_since: Unix time since which it reaches none of the groups; None: it reaches one, or none is ready.
    """

    unconnected_since: float | None = None
    stale: bool = False  # its watch of the groups is lost: it does not learn of new ones
    keys: RouterKeys | None = None  # None: it needs none, or its page does not say
    skew: str = ""  # why its release and a group's do not work together; "" if they do


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that the API server refused at the last attempt."""

    action: str  # such as "apply Deployment chat-router"
    kind: str
    message: str  # the server's words


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field of an object that is changed each time after the operator has applied it."""

    kind: str
    name: str
    field: str  # such as spec.replicas; "": the whole object, which is deleted
    manager: str  # field manager that changes it; "": not known
    is_admission: bool = False  # the API server's answer to the apply has another value


@dataclass(frozen=True, slots=True)
class WarningEvent:
    """The newest event of one reason on a child object: Warnings, and a cluster autoscaler's that it adds a node."""

    kind: str  # StatefulSet, ReplicaSet, Pod
    name: str
    reason: str
    message: str
    time_s: float


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node that is not Ready."""

    state: str  # gone: there is no such Node; unreachable: no heartbeat; not ready: its kubelet says so
    since_s: float  # Unix time; 0 for a node that is gone


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The children of one service, as cached at one moment."""

    children: tuple[Object, ...] = ()  # all labelled objects of the kinds that are applied, of any owner
    statefulsets: tuple[Object, ...] = ()  # owned by the service
    revisions: tuple[Object, ...] = ()  # ControllerRevisions owned by the service; `data` may be JSON text
    pods: tuple[Object, ...] = ()  # labelled with the service, workers and routers, owned through a child or orphaned
    router: Object | None = None  # the Deployment
    reports: Mapping[int, GroupReport] = field(default_factory=dict)  # by group index
    warnings: tuple[WarningEvent, ...] = ()
    foreign: frozenset[tuple[str, str]] = (
        frozenset()
    )  # (kind, name) of objects with our names that the service does not own
    # Nodes of unhealthy pods that are known not to be Ready, by name, where nodes may be read.
    lost_nodes: Mapping[str, LostNode] = field(default_factory=dict)
    # Nodes of its pods that are being drained, by name, and how that is known; None: nodes may not be read. Empty where
    # spec.disruption.onDrain is evict.
    draining_nodes: Mapping[str, str] | None = field(default_factory=dict)
    autoscaled: bool = False  # an autoscaler has recorded an event of a pod that has no node now
    routers: Mapping[str, RouterReport] = field(default_factory=dict)  # by pod uid; absent: no answer
    refusals: tuple[Refusal, ...] = ()
    conflicts: tuple[FieldConflict, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()  # (kind, the server's words) of children that may not be listed
