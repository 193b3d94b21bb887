"""What a chat template is shown of a message: what transformers shows it, in a shape that the template knows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jinja2

from octavo.router.openai_api.messages import Message, ToolCall

Json = dict[str, Any]  # Any: JSON of any shape


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """What a template knows of. names: variables that it reads; parts: it goes through the parts of a content."""

    names: frozenset[str]
    parts: bool
    developer: bool

    @staticmethod
    def of(tree: jinja2.nodes.Template, source: str) -> "TemplateInput":
        names = frozenset(node.name for node in tree.find_all(jinja2.nodes.Name) if node.ctx == "load")
        contents = {"content"} | set(_assigned(tree))
        loops = tree.find_all(jinja2.nodes.For)
        return TemplateInput(names, any(_is_content(loop.iter, contents) for loop in loops), "developer" in source)

    def message(self, message: Message) -> Json:
        """As transformers hands it to a template: without keys that have no value."""
        role = "system" if message.role == "developer" and not self.developer else message.role
        given = {
            "thinking": message.reasoning,
            "role": role,
            "content": self._content(message.content),
            "name": message.name,
            "tool_calls": [_call(call) for call in message.tool_calls] or None,
            "tool_call_id": message.tool_call_id,
            "reasoning_content": message.reasoning,
        }
        return {key: value for key, value in given.items() if value is not None}

    def _content(self, content: str | tuple[str, ...] | None) -> object:
        """Templates that know no parts get their texts in lines."""
        if not isinstance(content, tuple):
            return content
        return [{"type": "text", "text": text} for text in content] if self.parts else "\n".join(content)


def _call(call: ToolCall) -> Json:
    made: Json = {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return made if call.id is None else {"id": call.id} | made


def _assigned(tree: jinja2.nodes.Template) -> Iterator[str]:
    """Names that stand for a message's content."""
    for node in tree.find_all(jinja2.nodes.Assign):
        if isinstance(node.target, jinja2.nodes.Name) and _is_content(node.node, {"content"}):
            yield node.target.name


def _is_content(node: jinja2.nodes.Node | None, names: set[str]) -> bool:
    """message.content, message['content'], a name for it, or one of them filtered."""
    while isinstance(node, jinja2.nodes.Filter):
        node = node.node
    if isinstance(node, jinja2.nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, jinja2.nodes.Getitem):
        return isinstance(node.arg, jinja2.nodes.Const) and node.arg.value == "content"
    return isinstance(node, jinja2.nodes.Name) and node.name in names
