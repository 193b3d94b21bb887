"""Detects the format of a model's tool calls by its chat template; the markers of each format."""

from collections.abc import Callable, Collection, Mapping
from typing import Literal

from octavo.router.parsers.tools import hermes, llama3, mistral
from octavo.router.parsers.tools.events import ToolParser

ToolFormat = Literal["llama3", "hermes", "mistral"]
MARKERS: Mapping[ToolFormat, tuple[str, ...]] = {
    "llama3": (llama3.TAG,),
    "hermes": (hermes.BEGIN, hermes.END),
    "mistral": (mistral.BEGIN, mistral.ARGS, mistral.CALL_ID),
}


def detect(template: str, tokens: Collection[str] = ()) -> ToolFormat | None:
    """None: the template has no tools, or in a format that has no parser here. tokens: the tokenizer's control tokens.

    A template may offer tools and leave calls to the model: then a control token that only calls need tells.
    """
    if hermes.BEGIN in template:
        return None if "<function=" in template else "hermes"  # the same markers around XML: Qwen3-Coder
    if mistral.BEGIN in template:
        return "mistral"
    if llama3.TAG in template or ("<|start_header_id|>" in template and '"parameters"' in template):
        return "llama3"
    return "mistral" if "tools" in template and mistral.BEGIN in tokens else None


def written(kind: ToolFormat, template: str, tokens: Collection[str] = ()) -> frozenset[str]:
    """The markers that a model writes: the markers in its template; where that shows no calls, its control tokens."""
    shown = template if MARKERS[kind][0] in template else tokens
    return frozenset(marker for marker in MARKERS[kind] if marker in shown)


def tool_parser(
    kind: ToolFormat,
    names: Collection[str],
    spelling: Callable[[str], str],
    name_first: bool = False,
    formed: bool = False,
) -> ToolParser:
    """For one answer. names: of the client's tools. spelling: what stands for a marker in the answer's text.
    Of calls that nothing marks: name_first: as the grammar has it that the answer is bound to; formed: so has what is
    no call."""
    markers = [spelling(marker) for marker in MARKERS[kind]]
    if kind == "hermes":
        return hermes.HermesParser(*markers)
    if kind == "mistral":
        return mistral.MistralParser(*markers)
    if formed:
        return llama3.FormedLlama3Parser(names)
    return llama3.Llama3Parser(names, markers[0], name_first)
