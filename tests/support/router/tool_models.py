"""The random checkpoint with a template that takes tools, and all markers of calls and of reasoning as tokens."""

import json
from pathlib import Path

from support.models.checkpoints import SPECIAL, TEMPLATE, random_checkpoint

FIRST = max(SPECIAL) + 1
CONTROL = ("[TOOL_CALLS]", "<|python_tag|>")
ADDED = ("<tool_call>", "</tool_call>", "<think>", "</think>")  # tokens, but shown as text, as Qwen has them
IDS = {marker: FIRST + index for index, marker in enumerate(CONTROL + ADDED)}


def tool_checkpoint(folder: Path) -> Path:
    """Which format it writes is the router's flag to say."""
    random_checkpoint(folder)
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text())
    vocabulary = described["model"]["vocab"]
    taken = {number: name for name, number in vocabulary.items() if number in IDS.values()}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for marker, number in IDS.items():
        del vocabulary[taken[number]]
        vocabulary[marker] = number
        described["added_tokens"].append({"id": number, "content": marker, "special": marker in CONTROL, **flags})
    path.write_text(json.dumps(described))
    offered = "{% if tools %}<|start|>system\n{{ tools | tojson }}<|end|>\n{% endif %}"
    (folder / "chat_template.jinja").write_text(offered + TEMPLATE)
    return folder
