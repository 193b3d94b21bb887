"""Encoding by cached words: byte-level BPE with a GPT-2 style splitter sees a lone space between two printable ASCII
characters as the start of a piece, so the text may be cut there, and each piece's ids remembered.

    "the quick fox" -> "the" + " quick" + " fox"      encode(a + b) == encode(a) + encode(b)

Ids are kept packed, so that a prompt is one join. Used only for tokenizers whose splitter is known to have this
property, and proved on samples when built.
"""

import re
from array import array
from collections.abc import Mapping

from tokenizers import Tokenizer

CUT = re.compile(r"(?<=[!-~])(?= [!-~])")
MAX_WORDS = 65_536
MAX_WORD_CHARACTERS = 48
SAMPLE = (
    "Hello, world! It's 1st of  2 (or 12,345) x=y; \n\tdef f(a): return 'we're' the END. naïve café 日本 a\u00a0b -- ok"
)


class WordCache(dict[str, bytes]):
    """Packed ids of each word, found when first used; `before` is put in front of it."""

    def __init__(self, tokenizer: Tokenizer, before: str) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._before = before

    def __missing__(self, word: str) -> bytes:
        ids = self._tokenizer.encode(self._before + word, add_special_tokens=False).ids
        packed = array("I", ids).tobytes()
        if len(word) <= MAX_WORD_CHARACTERS:
            if len(self) >= MAX_WORDS:
                self.clear()
            self[word] = packed
        return packed


class WordEncoder:
    """Remembers the ids of words; encodes like the tokenizer itself."""

    def __init__(self, tokenizer: Tokenizer, added: tuple[str, ...]) -> None:
        self._plain = WordCache(tokenizer, "")
        self._spaced = WordCache(tokenizer, " ")
        self._prefix, self._suffix = _frame(tokenizer)
        self._added = re.compile("|".join(map(re.escape, added))) if added else None

    @staticmethod
    def of(tokenizer: Tokenizer, described: Mapping[str, object]) -> "WordEncoder | None":
        """None where words cannot be trusted to stand alone."""
        if not _splits_at_spaces(described):
            return None
        encoder = WordEncoder(tokenizer, tuple(_added(described)))
        samples = (SAMPLE, SAMPLE.split(";")[0], "one", " one", "one ", "")
        proved = all(encoder.encode(text) == array("I", tokenizer.encode(text).ids).tobytes() for text in samples)
        return encoder if proved else None

    def encode(self, text: str) -> bytes | None:
        """Packed, the tokenizer's own special tokens around; None for a text that spells an added token."""
        if self._added is not None and self._added.search(text):
            return None
        if text.isascii() and text.isprintable() and "  " not in text and text.strip(" ") == text:
            first, *rest = text.split(" ")  # every space is a place to cut
            body = self._plain[first] + b"".join(map(self._spaced.__getitem__, rest))
        else:
            body = b"".join(map(self._plain.__getitem__, CUT.split(text)))
        return self._prefix + body + self._suffix


def _frame(tokenizer: Tokenizer) -> tuple[bytes, bytes]:
    """Packed ids that the post-processor puts before and after."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    framed = tokenizer.encode("a").ids
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return array("I", framed[:start]).tobytes(), array("I", framed[start + len(bare) :]).tobytes()
    return b"", b""


def _added(described: Mapping[str, object]) -> list[str]:
    tokens = described.get("added_tokens")
    return [str(item["content"]) for item in tokens if isinstance(item, dict)] if isinstance(tokens, list) else []


def _splits_at_spaces(described: Mapping[str, object]) -> bool:
    model, splitter, normalizer = (described.get(name) for name in ("model", "pre_tokenizer", "normalizer"))
    if not isinstance(model, dict) or model.get("type") != "BPE" or model.get("dropout"):
        return False
    if isinstance(normalizer, dict) and normalizer.get("type") not in ("NFC", "NFKC"):
        return False
    if not isinstance(splitter, dict):
        return False
    parts = splitter.get("pretokenizers") if splitter.get("type") == "Sequence" else [splitter]
    return isinstance(parts, list) and any(_cuts(part) for part in parts) and all(_harmless(part) for part in parts)


def _cuts(part: Mapping[str, object]) -> bool:
    """Splits before a space by itself: GPT-2's rule, or a pattern of its family."""
    if part.get("type") == "ByteLevel":
        return bool(part.get("use_regex", True))
    return part.get("type") == "Split" and r"\s+(?!\S)" in str(part.get("pattern"))


def _harmless(part: Mapping[str, object]) -> bool:
    if part.get("type") == "ByteLevel":
        return not part.get("add_prefix_space", True)
    return part.get("type") == "Digits" or _cuts(part)
