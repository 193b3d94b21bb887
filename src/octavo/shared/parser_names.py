"""Names of the parsers of answers: values of the router's flags and of the resource's fields."""

from typing import Literal, get_args

ToolFlag = Literal["auto", "none", "llama3", "hermes", "mistral"]
ReasoningFlag = Literal["auto", "none", "think"]
TOOL_FLAGS: tuple[ToolFlag, ...] = get_args(ToolFlag)
REASONING_FLAGS: tuple[ReasoningFlag, ...] = get_args(ReasoningFlag)
