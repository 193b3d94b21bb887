"""config.json and generation_config.json of a Hugging Face folder, checked into one frozen value. No torch.

What is not understood is refused by name: a model must never run with settings that were silently dropped.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from octavo.worker.models.errors import INVALID, NOT_FOUND, ModelError, unreadable

ARCHITECTURES = ("LlamaForCausalLM",)
DTYPES = ("float32", "bfloat16", "float16")
Json = dict[str, Any]  # what a JSON object may hold


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding. kind: default or llama3; the last four belong to llama3."""

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a Llama-like decoder. dtype: that of the checkpoint, by config.json (float32 when it says none)."""

    architecture: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    context_length: int
    tied: bool
    dtype: str
    rope: Rope


def read_config(folder: Path) -> tuple[ModelConfig, Json]:
    """Parse `folder`/config.json; the raw object comes with it. Raises ModelError."""
    path = folder / "config.json"
    raw = read_json(path, required=True)
    try:
        return _config(raw), raw
    except ConfigError as error:
        raise ModelError(INVALID, path, str(error)) from None


def read_eos_ids(folder: Path, config: Json, vocabulary: int) -> tuple[int, ...]:
    """generation_config.json decides (an id, a list, or null: none); without the file or the key, config.json does."""
    path = folder / "generation_config.json"
    generation = read_json(path, required=False)
    if "eos_token_id" not in generation:
        path, generation = folder / "config.json", config
    value = generation.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in ids):
        raise ModelError(INVALID, path, f"eos_token_id: {value!r} is neither an id, a list of ids, nor null")
    if beyond := [one for one in ids if one >= vocabulary]:
        raise ModelError(INVALID, path, f"eos_token_id: {beyond[0]} is not in the vocabulary of {vocabulary}")
    return tuple(ids)


def read_json(path: Path, required: bool) -> Json:
    """The JSON object in `path`; {} when it is absent and not required."""
    try:
        # Strict: the router's parser refuses what Python's would let pass.
        parsed = json.loads(path.read_bytes().decode(), parse_constant=_no_constant)
    except FileNotFoundError:
        if not required:
            return {}
        raise ModelError(NOT_FOUND, path, "no such file; a model is a Hugging Face folder with config.json") from None
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:  # bad JSON or bad UTF-8
        raise ModelError(INVALID, path, f"is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ModelError(INVALID, path, f"holds a {type(parsed).__name__}, not a JSON object")
    return parsed


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


class ConfigError(ValueError):
    """A field of config.json that cannot be served; the message names it."""


def _config(raw: Json) -> ModelConfig:
    architecture = _architecture(raw)
    _refuse_unsupported(raw)
    heads = _positive(raw, "num_attention_heads")
    kv_heads = _positive(raw, "num_key_value_heads", heads)
    hidden = _positive(raw, "hidden_size")
    if heads % kv_heads:
        _wrong("num_key_value_heads", kv_heads, f"it must divide num_attention_heads ({heads})")
    head_dim = _positive(raw, "head_dim", hidden // heads or None)
    if head_dim % 2:
        _wrong("head_dim", head_dim, "rotary embeddings need an even one")
    context = _positive(raw, "max_position_embeddings", 2048)
    return ModelConfig(
        architecture=architecture,
        vocabulary=_positive(raw, "vocab_size"),
        hidden=hidden,
        intermediate=_positive(raw, "intermediate_size"),
        layers=_positive(raw, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=_number(raw, "rms_norm_eps", 1e-6),
        context_length=context,
        tied=bool(raw.get("tie_word_embeddings", False)),
        dtype=_dtype(raw),
        rope=_rope(raw, context),
    )


def _architecture(raw: Json) -> str:
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        _wrong("architectures", names, "it must name one architecture")
    if names[0] not in ARCHITECTURES:
        _wrong("architectures", names[0], f"this architecture is not supported; supported: {', '.join(ARCHITECTURES)}")
    return str(names[0])


def _refuse_unsupported(raw: Json) -> None:
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            _wrong(key, raw[key], "biases are not supported")
    activation = raw.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        _wrong("hidden_act", activation, "only silu is supported")
    if raw.get("quantization_config"):
        _wrong("quantization_config", "an object", "quantised checkpoints are not supported")


def _dtype(raw: Json) -> str:
    name = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    if name not in DTYPES:
        _wrong("torch_dtype", name, f"it must be one of {', '.join(DTYPES)}")
    return str(name)


def _rope(raw: Json, context: int) -> Rope:
    """Three spellings: rope_scaling.type, rope_scaling.rope_type, and rope_parameters (which also holds rope_theta)."""
    key = "rope_parameters" if raw.get("rope_parameters") is not None else "rope_scaling"
    scaling = raw.get(key) or {}
    if not isinstance(scaling, dict):
        _wrong(key, scaling, "it must be an object or null")
    theta = _number(scaling if "rope_theta" in scaling else raw, "rope_theta", 10000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return Rope(theta)
    if kind != "llama3":
        _wrong(f"{key}.rope_type", kind, "this rope type is not supported; supported: default, llama3")
    low, high = (_number(scaling, name, None, key) for name in ("low_freq_factor", "high_freq_factor"))
    if high <= low:
        _wrong(f"{key}.high_freq_factor", high, f"it must exceed low_freq_factor ({low})")
    original = _positive(scaling, "original_max_position_embeddings", context, key)
    return Rope(theta, "llama3", _number(scaling, "factor", None, key), low, high, original)


def _positive(raw: Json, key: str, default: int | None = None, parent: str = "") -> int:
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        _wrong(f"{parent}.{key}" if parent else key, value, "it must be a whole number above 0")
    return value


def _number(raw: Json, key: str, default: float | None, parent: str = "") -> float:
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        _wrong(f"{parent}.{key}" if parent else key, value, "it must be a number above 0")
    return float(value)


def _wrong(key: str, value: object, why: str) -> NoReturn:
    raise ConfigError(f"{key}: {'missing' if value is None else repr(value)}; {why}")
