"""The flags that follow from the spec alone: the same in a pod and on one machine."""

from collections.abc import Iterable

from octavo.operator.api.v1alpha1 import Spec
from octavo.operator.quantity import quantity


def engine_flags(spec: Spec) -> list[str]:
    """What a worker is told of its model and its engine."""
    given = flags(
        [
            ("--served-name", spec.model.served_name),
            ("--dtype", spec.model.dtype),
            ("--context-length", spec.model.context_length),
            ("--max-batch-tokens", spec.engine.max_batch_tokens),
            ("--max-requests", spec.engine.max_requests),
            ("--kv-cache-memory", _bytes(spec.engine.kv_cache_memory)),
        ]
    )
    return given if spec.engine.prefix_caching else [*given, "--no-prefix-caching"]


def group_flags(spec: Spec) -> list[str]:
    """What a worker is told of its group's shape. What is not said is one rank, or all ranks of a stage in a pod."""
    tensor, pipeline, per_pod = spec.parallelism.tensor, spec.parallelism.pipeline, spec.accelerator.per_pod
    return flags(
        [
            ("--tensor", tensor if tensor > 1 else None),
            ("--pipeline", pipeline if pipeline > 1 else None),
            ("--ranks-per-pod", per_pod if per_pod != tensor else None),
        ]
    )


def router_flags(spec: Spec) -> list[str]:
    """What a router is told of its model, its queue and its clients."""
    router, queue = spec.router, spec.router.queue
    given = flags(
        [
            ("--served-name", spec.model.served_name),
            ("--queue-max-requests", queue.max_requests),
            ("--queue-max-wait", f"{queue.max_wait_s:g}"),
            ("--max-connections", router.max_connections),
            ("--tool-parser", router.tool_parser),
            ("--reasoning-parser", router.reasoning_parser),
            *(("--cors-origin", origin) for origin in router.cors_origins),
        ]
    )
    switches = {"--client-priority": router.client_priority, "--strict": router.strict}
    return [*given, *(switch for switch, on in switches.items() if on)]


def flags(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """--flag=value of each pair that has a value."""
    return [f"{flag}={value}" for flag, value in pairs if value is not None]


def _bytes(amount: str | None) -> int | None:
    """Bytes of a quantity: in whatever way it is written, it reaches the worker as a number."""
    return None if amount is None else int(quantity(amount) or 0)
