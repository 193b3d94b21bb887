"""Prompts of a soak: completions and chats that share prefixes of all lengths."""

import random
from dataclasses import dataclass
from typing import Any

from support.soak.model import WIDE, chat_ids, ids_of

PREFIXES = (0, 16, 150, 600, 1200)  # tokens
ENDS = (1, 3, 20, 90, 280)
LONGEST = 1500
CHATS = 5  # each fifth prompt is one


@dataclass(frozen=True, slots=True)
class Prompt:
    """fields: the body's `prompt` or `messages`. ids: what the model is given."""

    index: int
    path: str
    fields: dict[str, Any]  # Any: JSON
    ids: tuple[int, ...]

    @property
    def chat(self) -> bool:
        return "messages" in self.fields

    @property
    def seed(self) -> int:
        """Of its drawn answers: far from other prompts' seeds, as copy n of an answer is drawn with seed + n."""
        return 1000 * self.index + 7


def prompts(count: int, seed: int) -> list[Prompt]:
    draw = random.Random(f"prompts-{seed}")
    shared = [_text(draw, length) for length in PREFIXES]
    return [(_chat if index % CHATS == CHATS - 1 else _completion)(draw, index, shared) for index in range(count)]


def _completion(draw: random.Random, index: int, shared: list[str]) -> Prompt:
    text = (draw.choice(shared) + _text(draw, draw.choice(ENDS)))[:LONGEST]
    return Prompt(index, "/v1/completions", {"prompt": text}, tuple(ids_of(text)))


def _chat(draw: random.Random, index: int, shared: list[str]) -> Prompt:
    system = f"Be {_text(draw, 3)}{draw.choice(shared)[:700]}x"
    pairs = [("system", system), ("user", f"q{_text(draw, draw.choice(ENDS))}?")]
    messages = [{"role": role, "content": content} for role, content in pairs]
    return Prompt(index, "/v1/chat/completions", {"messages": messages}, tuple(chat_ids(pairs)))


def _text(draw: random.Random, length: int) -> str:
    return "".join(draw.choices(WIDE, k=length))
