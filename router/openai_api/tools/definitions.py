"""The tools that a chat request offers: `tools`, `tool_choice`, `parallel_tool_calls`, checked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.router.openai_api.fields import Fields, invalid, unsupported
from octavo.router.openai_api.plain_json import JsonLimits, check_bounds
from octavo.router.openai_api.tools.choice import Mode, choice

MAX_TOOLS = 128
BOUNDS = JsonLimits(depth=32, size=256 << 10)  # of all the tools as JSON
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
TOOL_FIELDS = frozenset(("type", "function"))
FUNCTION_FIELDS = frozenset(("name", "description", "parameters", "strict", "return"))
Json = dict[str, Any]  # Any: JSON of any shape


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How calls come into the answer, and are found there. names: of the tools that may be called. parallel: several.

    mode: with `required` and `named` the answer is calls, and nothing else. strict: names of tools whose arguments
    match their schema. bound: the answer is bound to a grammar on their account. formed: what is no call is bound, too.
    """

    names: tuple[str, ...]
    parallel: bool = True
    mode: Mode = "auto"
    strict: tuple[str, ...] = ()
    bound: bool = False
    formed: bool = False

    @property
    def must(self) -> bool:
        """There is a call in any case."""
        return self.mode in ("required", "named")

    @property
    def several(self) -> bool:
        """There may be more than one call; a named function is called once."""
        return self.parallel and self.mode != "named"

    @property
    def reason(self) -> str:
        """Why an answer with a call has ended: OpenAI's clients know of a call that they named."""
        return "stop" if self.mode == "named" else "tool_calls"


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """What the template is to render, and how the answer is read; use is None when no tool may be called."""

    tools: tuple[Json, ...] = ()
    use: ToolUse | None = None


def offer(fields: Fields) -> OfferedTools:
    """Raises RequestError 400. With `tool_choice: none` tools are checked, but neither rendered nor looked for."""
    given = _tools(fields.get("tools"))
    chosen = choice(fields.get("tool_choice"), [tool["function"]["name"] for tool in given])
    parallel = fields.flag("parallel_tool_calls") or fields.get("parallel_tool_calls") is None
    if chosen.mode == "none":
        return OfferedTools()
    functions = [tool["function"] for tool in given if tool["function"]["name"] in chosen.names]
    must = chosen.mode in ("required", "named")
    strict = tuple(one["name"] for one in functions if must or one.get("strict"))
    bound = bool(strict) or len(functions) < len(given)
    return OfferedTools(given, ToolUse(chosen.names, parallel, chosen.mode, strict, bound))


def _tools(value: object) -> tuple[Json, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid("tools", "tools must be a list")
    if len(value) > MAX_TOOLS:
        raise invalid("tools", f"tools holds {len(value)} tools; at most {MAX_TOOLS} are allowed")
    check_bounds("tools", value, BOUNDS)
    tools = tuple(_tool(f"tools[{index}]", item) for index, item in enumerate(value))
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        name = tool["function"]["name"]
        if name in seen:
            raise invalid(f"tools[{index}].function.name", f"two tools are named {name!r}")
        seen.add(name)
    return tools


def _tool(where: str, value: object) -> Json:
    """As the client gave it, but for null fields: templates render what is there."""
    if not isinstance(value, dict):
        raise invalid(where, f"{where} must be an object")
    _only(where, value, TOOL_FIELDS)
    if value.get("type") != "function":
        raise invalid(f"{where}.type", f"{where}.type must be 'function': other tools are not supported")
    function = value.get("function")
    if not isinstance(function, dict):
        raise invalid(f"{where}.function", f"{where}.function must be an object")
    return value | {"function": _function(f"{where}.function", function)}


def _function(where: str, function: Mapping[str, object]) -> Json:
    _only(where, function, FUNCTION_FIELDS)
    fields = Fields(function, f"{where}.")
    name = fields.text("name")
    if name is None or not NAME.fullmatch(name):
        raise invalid(f"{where}.name", f"{where}.name must be 1 to 64 letters, digits, '_', '.' or '-'")
    fields.text("description")
    fields.flag("strict")
    for schema in ("parameters", "return"):
        if not isinstance(function.get(schema, {}), dict | None):
            raise invalid(f"{where}.{schema}", f"{where}.{schema} must be a JSON schema: an object")
    return {key: item for key, item in function.items() if item is not None}


def _only(where: str, value: Mapping[str, object], known: frozenset[str]) -> None:
    for name, item in value.items():
        if name not in known and item is not None:
            raise unsupported(f"{where}.{name}", f"{where}.{name[:64]} is not supported: remove it")
