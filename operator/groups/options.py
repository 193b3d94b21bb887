"""The operator's flags that determine the objects it creates."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Defaults of pods. A group keeps the options that it was created with until its revision changes."""

    worker_image: str = "ghcr.io/octavo/worker:0.1.0"
    router_image: str = "ghcr.io/octavo/router:0.1.0"
    image_pull_policy: str = "IfNotPresent"
    allow_host_path: bool = False  # allow file:// models, which mount a folder of the node
    operator_namespace: str = "octavo-system"  # of the operator's pods, which connect to the workers' status port
