"""Forms that answers are bound to. Each has few enough answers that they can be listed, so that the right one can be
computed from logits alone: greedy decoding takes the likeliest of the characters that some answer goes on with."""

import itertools
import json
import string
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Form:
    """fields: of the request. answers: all that match, none of which begins another."""

    name: str
    fields: dict[str, Any]  # Any: JSON
    answers: frozenset[str]

    def following(self, text: str) -> set[str]:
        """The characters that may come after `text`; none: it is whole."""
        return {answer[len(text)] for answer in self.answers if answer.startswith(text) and answer != text}


_SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["s", "mm", "lll"]}, "ready": {"type": "boolean"}},
    "required": ["size", "ready"],
    "additionalProperties": False,
}
_OBJECTS = frozenset(
    json.dumps({"size": size, "ready": ready}, separators=(",", ":"))
    for size, ready in itertools.product(("s", "mm", "lll"), (False, True))
)
_CODES = frozenset(
    f"{a}{b}-{c}" for a, b, c in itertools.product(string.ascii_uppercase, string.ascii_uppercase[:5], string.digits)
)
_NAMES = ("red", "green and blue", "blue", "grey")

FORMS = (
    Form("schema", {"structured_outputs": {"json": _SCHEMA, "disable_any_whitespace": True}}, _OBJECTS),
    Form("expression", {"guided_regex": "[A-Z][A-E]-[0-9]"}, _CODES),
    Form("choice", {"guided_choice": list(_NAMES)}, frozenset(_NAMES)),
)
