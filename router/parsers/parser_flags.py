"""Which parsers a router uses, as its command line says it."""

from dataclasses import dataclass

from octavo.shared.router_settings import ReasoningFlag, ToolFlag


@dataclass(frozen=True, slots=True)
class ParserFlags:
    """What the command line says."""

    tools: ToolFlag = "auto"
    reasoning: ReasoningFlag = "auto"


AUTO = ParserFlags()
