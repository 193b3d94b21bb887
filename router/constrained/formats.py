"""What a model's answers are made of, by its template or by the router's flags, and the parsers for one of them.

A marker that is a control token is found by its id: the detokeniser shows it as a noncharacter, which no text spells.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from octavo.router.constrained.call_grammar import AnswerShape, Marker
from octavo.router.openai_api.fields import unsupported
from octavo.router.openai_api.openai import ParsedRequest
from octavo.router.openai_api.tools.definitions import ToolUse
from octavo.router.parsers import reasoning
from octavo.router.parsers.answer_parser import AnswerParser, call_id, mistral_call_id
from octavo.router.parsers.parser_flags import ParserFlags
from octavo.router.parsers.reasoning import Thought
from octavo.router.parsers.tools import formats
from octavo.router.parsers.tools.formats import ToolFormat
from octavo.router.text.bodies import EncodedRequest
from octavo.router.text.tokenizer import ModelTokenizer

STAND_INS = [chr(0x1FFFE + 0x10000 * plane) for plane in range(8)]  # noncharacters, one for each marker


@dataclass(frozen=True, slots=True)
class Formats:
    """tools: None: no calls are found. marks: ids of markers that are control tokens, and what stands for them. ids: of
    all markers that are tokens. written: markers of calls as the model writes them."""

    tools: ToolFormat | None = None
    reasoning: bool = False
    marks: Mapping[int, str] = field(default_factory=dict)
    spelling: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)
    written: frozenset[str] = frozenset()

    @staticmethod
    def of(model: ModelTokenizer, flags: ParserFlags) -> "Formats":
        source = model.template_source
        tools: ToolFormat | None = None
        if flags.tools == "auto":
            tools = formats.detect(source, model.control_tokens)
        elif flags.tools != "none":
            tools = flags.tools
        thinks = reasoning.detect(source) if flags.reasoning == "auto" else flags.reasoning == "think"
        markers = (formats.MARKERS[tools] if tools else ()) + ((reasoning.BEGIN, reasoning.END) if thinks else ())
        control = [marker for marker in markers if marker in model.control_tokens]
        stands = dict(zip(control, STAND_INS, strict=False))
        marks = {model.control_tokens[marker]: stands[marker] for marker in control}
        ids = {marker: model.added_tokens[marker] for marker in markers if marker in model.added_tokens}
        written = formats.written(tools, source, model.control_tokens) if tools else frozenset()
        return Formats(tools, thinks, marks, stands, ids, written)

    def check(self, request: ParsedRequest) -> None:
        """Raises RequestError 400 for tools whose calls could not be found in the answer."""
        if request.tool_use is not None and self.tools is None:
            message = "no parser finds this model's tool calls: start the router with --tool-parser, or remove tools"
            raise unsupported("tools", message)

    def parser(self, encoded: EncodedRequest) -> Callable[[], AnswerParser] | None:
        """Makes one for each answer to a request; None where its text is all content."""
        request = encoded.request
        if request.kind == "completion" or (request.tool_use is None and not self.reasoning):
            return None
        return lambda: self._parser(request, encoded.thought == "begun")

    def _parser(self, request: ParsedRequest, opened: bool) -> AnswerParser:
        thinks, use = None, request.tool_use
        if self.reasoning:
            thinks = reasoning.ReasoningParser(opened, self._spelt(reasoning.BEGIN), self._spelt(reasoning.END))
        tools = None
        if use is not None and self.tools is not None:
            tools = formats.tool_parser(self.tools, use.names, self._spelt, use.bound, use.formed)
        hidden = {ord(character): None for character in self.spelling.values()}
        new_id = mistral_call_id if self.tools == "mistral" else call_id
        reason = "tool_calls" if use is None else use.reason
        return AnswerParser(thinks, tools, new_id, use is not None and not use.parallel, hidden, reason)

    def shape(self, use: ToolUse | None, thought: Thought, answers: bool) -> AnswerShape:
        """Of an answer that these parsers read. answers: what is no call has a form."""
        said = thought if self.reasoning else None
        if use is None:
            return AnswerShape(None, (), self._marker, answers=answers, thought=said)
        assert self.tools is not None, "tools without a parser are refused"
        return AnswerShape(self.tools, use.names, self._marker, use.must, use.several, answers, said, self.written)

    def _marker(self, text: str) -> Marker:
        return Marker(text, self.ids.get(text), text not in self.spelling)

    def _spelt(self, marker: str) -> str:
        return self.spelling.get(marker, marker)
