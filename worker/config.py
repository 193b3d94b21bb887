"""The settings of a worker pod, checked once. The flags follow the resource's fields; see main.py.

Errors name the flag, because a user sees them on the command line or in the pod's log.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from octavo.shared.limits import LEAST_TOKEN_INTERVAL_S, MAX_RANKS, MOST_TOKEN_INTERVAL_S
from octavo.shared.model_uri import LOCAL
from octavo.worker.addresses import rank_address
from octavo.worker.errors import ConfigError
from octavo.worker.topology import Layout

_SUFFIXES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 10**3, "MB": 10**6, "GB": 10**9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    """One worker pod.

    model: uri or folder. served_name: what clients ask for. dtype: auto is the checkpoint's, float32 on CPUs.
    context_length: tokens; None is the model's. max_batch_tokens: tokens in one step; more makes prompts faster and the
    tokens between them slower. max_requests: rows of request state on the device. token_interval_s: seconds between two
    tokens of a request while prompts of others are read. Where they are None the device decides, and for the interval
    what runs and what waits. kv_cache_bytes: None is what a GPU has left, on CPUs a quarter of the memory limit, else 1
    GiB. prepare_sleep: from the start, keep what a first sleep needs: on GPUs a pinned copy of the weights. device:
    auto is a GPU where there is one. threads: of each rank on CPUs; None is the pod's CPUs divided among
    its ranks: too many where several pods share a machine without limits. serve, group, status: gRPC addresses,
    `unix:/path` or `host:port`. health, metrics: plain HTTP, `host:port` or `unix:/path`. tls_dir: None is plaintext,
    on this machine only. grace_s: seconds between SIGTERM and the kubelet's SIGKILL; a drain ends 5 s before them.
    log_level: of the supervisor and its children: debug, info, warning or error. tensor, pipeline, ranks_per_pod (0:
    tensor), pod_index: the group's shape, and which of its pods this is. peers: the `group` address of every pod, as
    the others dial it; may be empty in a group of one pod.
    """

    model: str
    served_name: str
    serve: str
    group: str
    status: str
    health: str
    metrics: str
    dtype: str = "auto"
    context_length: int | None = None
    max_batch_tokens: int | None = None
    max_requests: int | None = None
    token_interval_s: float | None = None
    kv_cache_bytes: int | None = None
    prefix_caching: bool = True
    prepare_sleep: bool = False
    device: str = "auto"
    threads: int | None = None
    tls_dir: str | None = None
    service_uid: str = ""
    revision: str = ""
    pod_name: str = "local"
    tensor: int = 1
    pipeline: int = 1
    ranks_per_pod: int = 0
    pod_index: int = 0
    peers: tuple[str, ...] = ()
    grace_s: float = 120.0
    log_level: str = "info"

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_shape(self)
        for flag in ("serve", "group", "status", "health", "metrics"):
            check_address(f"--{flag}", getattr(self, flag))
        if self.tls_dir is None:
            for flag in ("serve", "group", "status"):
                _check_local(f"--{flag}", getattr(self, flag))
        elif missing := [n for n in ("ca.crt", "tls.crt", "tls.key") if not (Path(self.tls_dir) / n).is_file()]:
            raise ConfigError(f"--tls-dir: {self.tls_dir} lacks {', '.join(missing)}")
        if not self.model:
            raise ConfigError(f"--model: give a uri ({LOCAL}) or a folder")

    @property
    def layout(self) -> Layout:
        return Layout(self.tensor, self.pipeline, self.ranks_per_pod or self.tensor)

    def pod_of(self, rank: int) -> str:
        """The name of the pod that holds a rank; of -1 this one's. Names of a group's pods end in their index."""
        if rank < 0 or self.layout.pods == 1:
            return self.pod_name
        return f"{self.pod_name.rpartition('-')[0]}-{self.layout.pod_of(rank)}"

    @property
    def leads(self) -> bool:
        """Whether this is the leader's pod."""
        return self.pod_index == 0


def _check_numbers(config: Config) -> None:
    bounds = {
        "context_length": (1, 2**24), "max_batch_tokens": (1, 2**20), "max_requests": (1, 4096),
        "token_interval_s": (LEAST_TOKEN_INTERVAL_S, MOST_TOKEN_INTERVAL_S), "threads": (1, 1024),
        "kv_cache_bytes": (2**16, 2**50), "grace_s": (0, 86400), "tensor": (1, MAX_RANKS), "pipeline": (1, MAX_RANKS),
        "ranks_per_pod": (0, MAX_RANKS), "pod_index": (0, MAX_RANKS - 1),
    }  # fmt: skip
    flags = {"kv_cache_bytes": "kv-cache-memory", "grace_s": "grace-period", "token_interval_s": "token-interval"}
    for name, (low, high) in bounds.items():
        value = getattr(config, name)
        if value is not None and not low <= value <= high:
            raise ConfigError(f"--{flags.get(name, name.replace('_', '-'))}: {value} is not between {low} and {high}")


def _check_shape(config: Config) -> None:
    tensor, ranks = config.tensor, config.tensor * config.pipeline
    if config.ranks_per_pod and tensor % config.ranks_per_pod:
        raise ConfigError(f"--ranks-per-pod: {config.ranks_per_pod} does not divide --tensor {tensor}")
    if config.device == "cuda" and config.layout.per_pod != tensor:
        raise ConfigError(f"--ranks-per-pod: on GPUs the {tensor} ranks of a stage share a pod; leave it out")
    if ranks > MAX_RANKS:
        raise ConfigError(f"--tensor, --pipeline: {tensor} x {config.pipeline} ranks are more than {MAX_RANKS}")
    pods = config.layout.pods
    if config.pod_index >= pods:
        raise ConfigError(f"--pod-index: {config.pod_index} is not below the group's {pods} pods")
    if len(config.peers) != pods and (config.peers or pods > 1):
        raise ConfigError(f"--peers: {len(config.peers)} addresses for the group's {pods} pods")
    for address in config.peers:
        check_address("--peers", address)
        try:
            rank_address(address, config.layout.per_pod - 1)
        except ValueError as error:
            raise ConfigError(f"--peers: {error}") from error


def check_address(flag: str, address: str) -> None:
    """Raise ConfigError unless `address` is `unix:/path` or `host:port`."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            raise ConfigError(f"{flag}: {address!r}: give unix: and an absolute path")
        if len(path.encode()) > 100:
            raise ConfigError(f"{flag}: {address!r}: the path of a Unix socket has at most 100 bytes")
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{flag}: {address!r} is neither unix:/path nor host:port")


def is_unix(address: str) -> bool:
    return address.startswith("unix:")


def _check_local(flag: str, address: str) -> None:
    host = address.rpartition(":")[0].strip("[]")
    if not is_unix(address) and host not in ("127.0.0.1", "::1", "localhost"):
        raise ConfigError(f"{flag}: {address} would be open to the network without TLS; give --tls-dir or unix:")


def parse_bytes(flag: str, text: str) -> int:
    """A Kubernetes quantity of memory (`1Gi`, `500M`), or one written as `64MiB`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text.strip())
    if match is None or match[2] not in _SUFFIXES:
        raise ConfigError(f"{flag}: {text!r} is no amount of memory; write it as 512Mi, 2Gi or 64MiB")
    return int(Decimal(match[1]) * _SUFFIXES[match[2]])
