"""Which layers see only the last tokens: the sliding windows of config.json. No torch. (Beltagy 2020, Jiang 2023)"""

from collections.abc import Sequence

from octavo.worker.models.config.family import Family
from octavo.worker.models.config.json_fields import Json, flag, whole, wrong

_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_windows(raw: Json, family: Family, layers: int) -> tuple[int, ...]:
    """How many tokens each layer sees, the token itself among them; 0: all. Raises ConfigError."""
    window = _window(raw, family)
    kinds = _kinds(raw, family, window, layers)
    if _SLIDING in kinds and not window:
        wrong("layer_types", _SLIDING, "there is no sliding window by sliding_window and use_sliding_window")
    return tuple(window if kind == _SLIDING else 0 for kind in kinds)


def _window(raw: Json, family: Family) -> int:
    """0: none."""
    window = None if raw.get("sliding_window") is None else whole(raw, "sliding_window")
    if family.windows == "upper" and not flag(raw, "use_sliding_window"):
        return 0
    if family.windows == "none" and window is not None and raw.get("use_sliding_window", True):
        wrong("sliding_window", window, "this architecture has none; set it to null")
    return 0 if window is None or family.windows == "none" else window


def _kinds(raw: Json, family: Family, window: int, layers: int) -> Sequence[str]:
    """By layer. Only where a family has windows in some layers may layer_types choose."""
    first = whole(raw, "max_window_layers", least=0) if family.windows == "upper" else 0
    implied = [_SLIDING if window and index >= first else _FULL for index in range(layers)]
    named = raw.get("layer_types")
    if named is None:
        return implied
    if not isinstance(named, list) or len(named) != layers:
        wrong("layer_types", named, f"it must name the kind of each of {layers} layers")
    for kind in named:
        if kind not in (_FULL, _SLIDING):
            wrong("layer_types", kind, f"this kind of attention is not supported; supported: {_FULL}, {_SLIDING}")
    if family.windows != "upper" and named != implied:
        wrong("layer_types", named, "this architecture has the same attention in all layers")
    return named
