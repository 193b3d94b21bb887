"""`tool_choice`: which tools may be called in an answer, and whether one must be. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from octavo.router.openai_api.fields import invalid, unsupported

Mode = Literal["none", "auto", "required", "named"]
WHAT = "'none', 'auto', 'required', or an object that names a function"
Json = dict[str, Any]  # Any: JSON of any shape


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """names: of the tools that may be called; of all where the client does not say."""

    mode: Mode
    names: tuple[str, ...]


def choice(value: object, offered: Sequence[str]) -> ToolChoice:
    """offered: names of the request's tools. Raises RequestError 400."""
    every = tuple(offered)
    if value is None or value == "auto" or value == "none":
        return ToolChoice("auto" if value != "none" and offered else "none", every)
    if value == "required" or (isinstance(value, dict) and value.get("type") in ("function", "allowed_tools")):
        if not offered:
            raise invalid("tool_choice", "tool_choice asks for a call, and there are no tools: give tools")
        return ToolChoice("required", every) if value == "required" else _object(value, every)
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        raise unsupported("tool_choice", f"tool_choice of type {value['type'][:32]!r} is not supported: use {WHAT}")
    raise invalid("tool_choice", f"tool_choice must be {WHAT}")


def _object(value: object, offered: tuple[str, ...]) -> ToolChoice:
    assert isinstance(value, dict), "an object was found"
    if value["type"] == "function":
        return ToolChoice("named", (_named("tool_choice", value, offered),))
    return _allowed(value, offered)


def _named(where: str, value: object, offered: tuple[str, ...]) -> str:
    """{"type": "function", "function": {"name": ...}}"""
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(value, dict) or not isinstance(function, dict) or not isinstance(name, str):
        raise invalid(where, f"{where} must be {{type: 'function', function: {{name}}}}")
    _only(where, value, ("type", "function"))
    _only(f"{where}.function", function, ("name",))
    if name not in offered:
        raise invalid(f"{where}.function.name", f"{where}.function.name {name[:64]!r} is none of the tools")
    return name


def _allowed(value: Json, offered: tuple[str, ...]) -> ToolChoice:
    """{"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required", "tools": [...]}}"""
    where = "tool_choice.allowed_tools"
    _only("tool_choice", value, ("type", "allowed_tools"))
    inner = value.get("allowed_tools")
    if not isinstance(inner, dict):
        raise invalid(where, f"{where} must be an object with a mode and tools")
    _only(where, inner, ("mode", "tools"))
    mode, tools = inner.get("mode"), inner.get("tools")
    if mode not in ("auto", "required"):
        raise invalid(f"{where}.mode", f"{where}.mode must be 'auto' or 'required'")
    if not isinstance(tools, list) or not tools:
        raise invalid(f"{where}.tools", f"{where}.tools must be a list of functions that is not empty")
    named = {_named(f"{where}.tools[{index}]", item, offered) for index, item in enumerate(tools)}
    return ToolChoice(mode, tuple(name for name in offered if name in named))


def _only(where: str, value: Json, known: tuple[str, ...]) -> None:
    for name, item in value.items():
        if name not in known and item is not None:
            raise unsupported(f"{where}.{name}", f"{where}.{name[:64]} is not supported: remove it")
