"""The small files that a leader serves to routers, checked before anything starts. No tokenizers library, no torch.

tokenizer.json          required: how text becomes ids
tokenizer_config.json   special tokens, and perhaps the chat template
chat_template.jinja     the chat template
generation_config.json  the model's advice on sampling
config.json             the size of the vocabulary

A router that could not use them would answer every request with an error while the group is Ready. What the tokenizers
library alone can judge is left to it.
"""

from pathlib import Path

from octavo.worker.errors import INVALID, ModelError
from octavo.worker.models.config.json_fields import Json
from octavo.worker.models.folder.json_files import TOKENIZER as TOKENIZER_BOUND
from octavo.worker.models.folder.json_files import read_json

TOKENIZER = "tokenizer.json"
# They decide what text a model gives; the outline covers them.
TEXT_FILES = (TOKENIZER, "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
SERVED_FILES = (*TEXT_FILES, "config.json")
_SLOW = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
# Bounds of the API: advice beyond them could not be followed.
_ADVICE = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (-1, 2**31 - 1),
    "min_p": (0, 1),
    "repetition_penalty": (0, 2),
}


def check_text_files(folder: Path) -> None:
    """Raises ModelError ModelInvalid for what a router could not use."""
    path = folder / TOKENIZER
    if not path.is_file():
        raise ModelError(INVALID, path, _missing(folder))
    _check_tokenizer(path, read_json(path, required=True, bound=TOKENIZER_BOUND))
    read_json(folder / "tokenizer_config.json", required=False)
    path = folder / "generation_config.json"
    _check_advice(path, read_json(path, required=False))


def _missing(folder: Path) -> str:
    text = "no such file, and routers need it to turn text into tokens"
    if slow := next((name for name in _SLOW if (folder / name).exists()), None):
        text += f"; {slow} is not enough: make it with transformers' AutoTokenizer.from_pretrained(...)"
        text += ".save_pretrained(...)"
    return text


def _check_tokenizer(path: Path, described: Json) -> None:
    if not isinstance(described.get("model"), dict):
        raise ModelError(INVALID, path, "model: it must be an object; this is no tokenizer of the tokenizers library")
    added = described.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        known = isinstance(token, dict) and isinstance(token.get("content"), str)
        if not known or not isinstance(token.get("id"), int):
            raise ModelError(INVALID, path, f"added_tokens: {str(token)[:80]} lacks its content or its id")


def _check_advice(path: Path, advice: Json) -> None:
    for name, (low, high) in _ADVICE.items():
        value = advice.get(name)
        if value is None:
            continue
        whole = name == "top_k"
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise ModelError(INVALID, path, f"{name}: {value!r} is not {kind} in {low}..{high}")
