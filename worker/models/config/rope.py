"""Rotary position embedding as config.json has it. No torch; kernels/rope.py has the formulas. (Su 2021)"""

from dataclasses import dataclass

from octavo.worker.models.config.json_fields import Json, number, whole, wrong


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding. kind: default or llama3; the last four belong to llama3."""

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0


def read_rope(raw: Json, context: int) -> Rope:
    """Three spellings: rope_scaling.type, rope_scaling.rope_type, and rope_parameters (which also holds rope_theta).

    Raises ConfigError.
    """
    key = "rope_parameters" if raw.get("rope_parameters") else "rope_scaling"
    if raw.get("rope_scaling") not in (None, {}, raw.get(key)):
        wrong("rope_scaling", raw["rope_scaling"], "rope_parameters says something else; keep one of them")
    scaling = raw.get(key) or {}
    if not isinstance(scaling, dict):
        wrong(key, scaling, "it must be an object or null")
    _refuse_unsupported(scaling, key)
    theta = number(scaling if "rope_theta" in scaling else raw, "rope_theta", 10000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return Rope(theta)
    if kind != "llama3":
        wrong(f"{key}.rope_type", kind, "this rope type is not supported; supported: default, llama3")
    low, high = (number(scaling, name, parent=key) for name in ("low_freq_factor", "high_freq_factor"))
    if high <= low:
        wrong(f"{key}.high_freq_factor", high, f"it must exceed low_freq_factor ({low})")
    original = whole(scaling, "original_max_position_embeddings", context, parent=key)
    if raw.get("original_max_position_embeddings") not in (None, original):
        wrong("original_max_position_embeddings", raw["original_max_position_embeddings"], f"{key} says {original}")
    return Rope(theta, "llama3", number(scaling, "factor", parent=key), low, high, original)


def _refuse_unsupported(scaling: Json, key: str) -> None:
    if scaling.get("partial_rotary_factor") not in (None, 1):
        value = scaling["partial_rotary_factor"]
        wrong(f"{key}.partial_rotary_factor", value, "only the rotation of whole heads is supported")
    for name, value in scaling.items():
        if isinstance(value, dict):
            wrong(f"{key}.{name}", value, "rotary embeddings by kind of layer are not supported")
