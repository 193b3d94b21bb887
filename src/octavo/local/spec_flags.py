"""Flags of `octavo run` for fields of the spec; octavo.shared.router_settings has the routers' settings."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.router.process.config import argument_type
from octavo.shared.router_settings import SETTINGS, Setting
from octavo.shared.setting_kinds import Choice, Integer, Origins, Switch

Json = dict[str, Any]  # Any: a resource as JSON


@dataclass(frozen=True, slots=True)
class SpecFlag:
    """A flag that sets a field. path: below spec. value: of a switch, which has no argument. options: argparse's."""

    flag: str
    path: str
    help: str
    options: Mapping[str, Any]  # Any: argparse's own options
    value: bool | None = None

    @property
    def dest(self) -> str:
        """Name among the parsed arguments."""
        return self.flag.replace("-", "_")


TEXT = {"type": str, "metavar": "STR"}
NUMBER = {"type": int, "metavar": "INT"}
ON = {"action": "store_true"}

FIELDS = (
    SpecFlag("served-name", "model.servedName", "model name that clients send (default: the service's name)", TEXT),
    SpecFlag("dtype", "model.dtype", "auto or float32; on GPUs also bfloat16, float16", TEXT),
    SpecFlag(
        "context-length", "model.contextLength", "longest prompt plus answer, in tokens (default: the model's)", NUMBER
    ),
    SpecFlag("replicas", "replicas", "groups: copies of the model", NUMBER),
    SpecFlag("tensor", "parallelism.tensor", "ranks that share each layer: processes with a slice of it each", NUMBER),
    SpecFlag("pipeline", "parallelism.pipeline", "stages: runs of layers, each of them on tensor ranks", NUMBER),
    SpecFlag(
        "ranks-per-pod",
        "accelerator.perPod",
        "ranks of each worker process (default: all ranks of a stage)",
        NUMBER,
    ),
    SpecFlag("max-batch-tokens", "engine.maxBatchTokens", "tokens in one step", NUMBER),
    SpecFlag("max-requests", "engine.maxRequests", "requests that run at once in a group", NUMBER),
    SpecFlag("token-interval", "engine.tokenInterval", "time between tokens while prompts are read, e.g. 50ms", TEXT),
    SpecFlag("kv-cache-memory", "engine.kvCacheMemory", "memory for the KV cache, e.g. 512Mi", TEXT),
    SpecFlag(
        "no-prefix-caching", "engine.prefixCaching", "do not reuse the KV cache of earlier prompts", ON, value=False
    ),
    SpecFlag(
        "prepare-sleep",
        "engine.prepareSleep",
        "keep the weights in the host's memory, for a fast first `octavo sleep`",
        ON,
        value=True,
    ),
    SpecFlag("router-replicas", "router.replicas", "routers", NUMBER),
)


def add_spec_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each field that applies to one machine."""
    group = parser.add_argument_group("fields of the spec")
    for flag in _flags():
        field = flag.path if flag.value is None else f"{flag.path}: {str(flag.value).lower()}"
        text = f"{flag.help} [{field}]".replace("%", "%%")
        group.add_argument(f"--{flag.flag}", help=text, **flag.options)


def put_given(spec: Json, args: Mapping[str, Any]) -> None:  # Any: parsed arguments
    """Set the spec's fields from the flags that were given."""
    for flag in _given(args):
        *parents, last = flag.path.split(".")
        record = spec
        for parent in parents:
            record = record.setdefault(parent, {})
        record[last] = args[flag.dest] if flag.value is None else flag.value


def given_for(field: str, args: Mapping[str, Any]) -> list[str]:  # Any: parsed arguments
    """Flags that were given for the field, or for a field of it; such as spec.router.queue."""
    return [f"--{flag.flag}" for flag in _given(args) if f"spec.{flag.path}.".startswith(f"{field}.")]


def _given(args: Mapping[str, Any]) -> Iterator[SpecFlag]:  # Any: parsed arguments
    return (flag for flag in _flags() if args[flag.dest] is not None and args[flag.dest] is not False)  # 0 is given


def _flags() -> Iterator[SpecFlag]:
    yield from FIELDS
    for setting in SETTINGS.values():
        if setting.run_help is not None:
            value = True if isinstance(setting.kind, Switch) else None
            yield SpecFlag(setting.run_flag, f"router.{setting.path}", setting.run_help, _options(setting), value)


def _options(setting: Setting) -> Mapping[str, Any]:  # Any: argparse's own options
    """The field's own text: the operator's code checks it, as it does a file's."""
    match setting.kind:
        case Integer():
            return NUMBER
        case Choice():
            return {"choices": setting.kind.names}
        case Switch():
            return ON
        case Origins():
            return {"action": "append", "metavar": "ORIGIN", "type": argument_type(setting.kind.parse)}
    return TEXT
