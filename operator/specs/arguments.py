"""Flags of workers and routers that depend on the spec alone: the same in a pod and for `octavo run`."""

from collections.abc import Iterable

from octavo.operator.api.quantity import quantity
from octavo.operator.api.v1alpha1 import Model, Spec
from octavo.shared.router_settings import RouterSettings, to_flags


def engine_flags(spec: Spec) -> list[str]:
    """Flags of a worker for its model and its engine."""
    given = flags(
        [
            ("--dtype", spec.model.dtype),
            ("--context-length", spec.model.context_length),
            ("--max-batch-tokens", spec.engine.max_batch_tokens),
            ("--max-requests", spec.engine.max_requests),
            ("--token-interval", _seconds(spec.engine.token_interval_s)),
            ("--kv-cache-memory", _bytes(spec.engine.kv_cache_memory)),
        ]
    )
    if not spec.engine.prefix_caching:
        given.append("--no-prefix-caching")
    return [*given, "--prepare-sleep"] if spec.engine.prepare_sleep else given


def group_flags(spec: Spec) -> list[str]:
    """Flags of a worker for its group's shape; defaults are left out."""
    tensor, pipeline, per_pod = spec.parallelism.tensor, spec.parallelism.pipeline, spec.accelerator.per_pod
    return flags(
        [
            ("--tensor", tensor if tensor > 1 else None),
            ("--pipeline", pipeline if pipeline > 1 else None),
            ("--ranks-per-pod", per_pod if per_pod != tensor else None),
        ]
    )


def router_flags(model: Model, settings: RouterSettings) -> list[str]:
    """Flags of a router for its model, its queue and its clients."""
    return [*flags([("--served-name", model.served_name)]), *to_flags(settings)]


def flags(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """--flag=value for each pair whose value is not None."""
    return [f"{flag}={value}" for flag, value in pairs if value is not None]


def _seconds(duration_s: float | None) -> str | None:
    return None if duration_s is None else f"{duration_s:g}"


def _bytes(amount: str | None) -> int | None:
    """Bytes of a quantity; the worker's flag is a number."""
    return None if amount is None else int(quantity(amount) or 0)
