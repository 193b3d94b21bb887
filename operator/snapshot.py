"""What is observed of one service: the input of `plan`, beside the service itself.

Kubernetes objects are kept as the JSON that the API server sent (an `Object`); nothing here does I/O.
`observe` fills a Snapshot from its caches: objects labelled `octavo.dev/service: NAME` *and* owned by its uid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]  # Any: arbitrary Kubernetes JSON


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a life of a group's ranks ended."""

    pod: str
    rank: int  # -1: not a rank
    reason: str  # CamelCase, e.g. ModelInvalid, OOMKilled, RankExited
    exit_code: int  # negative: the signal
    message: str
    time_s: float  # Unix time


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a group says of the model that it holds."""

    fingerprint: str = ""
    architecture: str = ""
    size_bytes: int = 0
    context_length: int = 0
    note: str = ""  # e.g. why the context length was lowered


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The last answer of a group's pod 0 on its status port."""

    revision: str
    phase: (
        str  # a name of proto Phase without its prefix: STARTING, FETCHING, LOADING, WARMING, SERVING, DRAINING, FAILED
    )
    progress_percent: int = 0
    restarts: int = 0  # lives that ended by a failure
    last_failure: Failure | None = None
    model: ModelInfo | None = None
    collective: str = ""  # transport between the ranks of a stage: gloo, peers or nccl
    activations: str = ""  # transport between the stages: grpc or peers
    pod_uid: str = ""  # the pod that answered: an answer of a pod that is gone is ignored


@dataclass(frozen=True, slots=True)
class WarningEvent:
    """The newest Warning event of one reason on one object of ours (reasons that matter: FailedCreate, FailedMount)."""

    kind: str  # StatefulSet, ReplicaSet, Pod
    name: str
    reason: str
    message: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One service's children, as the caches had them at one moment."""

    children: tuple[Object, ...] = ()  # all objects of the kinds that are applied, whoever owns them
    statefulsets: tuple[Object, ...] = ()  # owned by the service
    pods: tuple[Object, ...] = ()  # labelled with the service, workers and routers, owned through a child or orphaned
    router: Object | None = None  # the Deployment
    reports: Mapping[int, GroupReport] = field(default_factory=dict)  # by group index
    warnings: tuple[WarningEvent, ...] = ()
    foreign: frozenset[tuple[str, str]] = (
        frozenset()
    )  # (kind, name) of objects with our names that the service does not own
    lost_nodes: frozenset[str] = frozenset()  # nodes known to be not Ready, where nodes may be read
