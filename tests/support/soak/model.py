"""The model of a soak: seeded random weights, and a tokenizer that has one token for each printable ASCII character.

Each character of a prompt is a token, so that lengths and stop strings are known without a tokenizer. What the model
generates may also be a special token, which is not shown, or a longer word; `TEXTS` has the text of each id.
"""

import json
import string
from collections.abc import Sequence
from pathlib import Path

from support.models.checkpoints import SPECIAL, byte_letters, random_checkpoint

from octavo.bundled import byte_level_bpe

CHARACTERS = "".join(map(chr, range(32, 127))) + "\n"
NAMES = tuple(SPECIAL.values())
VOCABULARY = 128  # of which two ranks of a stage can have halves
WORDS = tuple(f"<|w{index}|>" for index in range(len(CHARACTERS) + len(NAMES), VOCABULARY))
TEXTS = (*CHARACTERS, *[""] * len(NAMES), *WORDS)  # of each id, as an answer shows it
EOS = len(CHARACTERS) + NAMES.index("</s>")
WIDE = string.ascii_letters + string.digits + " .,"  # what prompts are drawn from

_IDS = {text: index for index, text in enumerate(TEXTS) if text} | {
    name: len(CHARACTERS) + index for index, name in enumerate(NAMES)
}


def soak_checkpoint(folder: Path) -> Path:
    """4 layers, 64 KiB of KV a block in float32: 16 MiB hold 255 blocks beside the one that is never used."""
    config = {"vocab_size": VOCABULARY, "head_dim": 64, "bos_token_id": _IDS["<s>"], "eos_token_id": EOS}
    random_checkpoint(folder, 1, eos=EOS, config=config)
    letters = byte_letters()
    vocabulary = {"".join(letters[byte] for byte in text.encode()): index for text, index in _IDS.items()}
    special = {index: name for index, name in enumerate(NAMES, len(CHARACTERS))}
    vocabulary |= {name: index for index, name in special.items()}
    (folder / "tokenizer.json").write_text(json.dumps(byte_level_bpe(vocabulary, (), special)))
    return folder


def ids_of(text: str) -> list[int]:
    """Of plain characters."""
    return [_IDS[character] for character in text]


def chat_ids(messages: Sequence[tuple[str, str]]) -> list[int]:
    """What the checkpoint's chat template gives for (role, content) pairs."""
    ids = []
    for role, content in messages:
        ids += [_IDS["<|start|>"], *ids_of(f"{role}\n{content}"), _IDS["<|end|>"], *ids_of("\n")]
    return [*ids, _IDS["<|start|>"], *ids_of("assistant\n")]
