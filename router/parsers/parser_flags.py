"""Which parsers a router uses, as its command line says it."""

from dataclasses import dataclass
from typing import Literal

ToolFlag = Literal["auto", "none", "llama3", "hermes", "mistral"]
ReasoningFlag = Literal["auto", "none", "think"]
TOOL_FLAGS: tuple[ToolFlag, ...] = ("auto", "none", "llama3", "hermes", "mistral")
REASONING_FLAGS: tuple[ReasoningFlag, ...] = ("auto", "none", "think")


@dataclass(frozen=True, slots=True)
class ParserFlags:
    """What the command line says."""

    tools: ToolFlag = "auto"
    reasoning: ReasoningFlag = "auto"


AUTO = ParserFlags()
