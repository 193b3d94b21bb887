"""What the operator was started with, as far as it shapes objects."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The operator's defaults. A group keeps those that it was made with until its revision changes."""

    worker_image: str = "ghcr.io/octavo/worker:0.1.0"
    router_image: str = "ghcr.io/octavo/router:0.1.0"
    image_pull_policy: str = "IfNotPresent"
    allow_host_path: bool = False  # file:// models: pods that mount a folder of their node
    operator_namespace: str = "octavo-system"  # where the operator's pods run; they may dial the workers' status port
