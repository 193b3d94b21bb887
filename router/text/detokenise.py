"""Token ids to text, a little at a time: never half a character, and the same text however the ids were cut.

Two ways, chosen by the tokenizer's decoder:
- byte-level BPE: a token is a run of bytes, whatever stands beside it; bytes go through a UTF-8 decoder with memory.
- anything else (Metaspace drops a leading space, WordPiece joins): decode a small window, show what it adds.

    ids   ... p p p p | r r r n          window = ids[prefix:], shown = decode(ids[prefix:read])
                prefix ^     ^ read       new text = decode(window) - shown, once it ends in a whole character
"""

import codecs
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from tokenizers import Tokenizer

from octavo.router.text.logprobs import TokenText, text_of

REPLACEMENT = "�"
PROMPT_WINDOW = 5  # prompt ids that give the first token its context
LONGEST_HELD = 8  # tokens without a whole character, after which it is shown broken: a character has 4 bytes at most


class Detokeniser(Protocol):
    """One generation's text."""

    def push(self, ids: Sequence[int]) -> str:
        """The whole characters that these ids complete."""

    def flush(self) -> str:
        """What is left at an end: at most one broken character."""


class TokenBytes(dict[int, bytes]):
    """Bytes of each token of a byte-level vocabulary, found when first used. Of special_ids, and unknown ids: none."""

    def __init__(self, tokenizer: Tokenizer, special_ids: frozenset[int]) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._special_ids = special_ids

    def __missing__(self, token: int) -> bytes:
        text = None if token in self._special_ids else self._tokenizer.id_to_token(token)
        piece = b"" if text is None else piece_bytes(text)
        self[token] = piece
        return piece


class TokenNames(dict[int, TokenText]):
    """Each token by itself, as log-probabilities name it; a special one by its own text. Unknown ids: nothing."""

    def __init__(self, tokenizer: Tokenizer, byte_level: bool) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._byte_level = byte_level

    def __missing__(self, token: int) -> TokenText:
        text = self._tokenizer.id_to_token(token) or ""
        name = self[token] = text_of(piece_bytes(text) if self._byte_level else metaspace_bytes(text))
        return name


class TokenTexts(dict[int, str | None]):
    """Text of each token whose bytes are whole characters by themselves; None for the others."""

    def __init__(self, pieces: TokenBytes) -> None:
        super().__init__()
        self._pieces = pieces

    def __missing__(self, token: int) -> str | None:
        try:
            text = self._pieces[token].decode()
        except UnicodeDecodeError:
            text = None
        self[token] = text
        return text


class ByteLevelDetokeniser:
    """For byte-level BPE: a dictionary look-up a token, and a UTF-8 decoder only where characters are split."""

    def __init__(self, pieces: TokenBytes, texts: TokenTexts) -> None:
        self._pieces = pieces
        self._texts = texts
        self._decoder: codecs.IncrementalDecoder | None = None  # set while a character is incomplete

    def push(self, ids: Sequence[int]) -> str:
        if len(ids) == 1:
            return self._one(ids[0])
        return "".join([self._one(token) for token in ids])

    def _one(self, token: int) -> str:
        if self._decoder is None:
            text = self._texts[token]
            if text is not None:
                return text
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._decoder.decode(self._pieces[token])
        if not self._decoder.getstate()[0]:
            self._decoder = None
        return text

    def flush(self) -> str:
        decoder, self._decoder = self._decoder, None
        return decoder.decode(b"", True) if decoder is not None else ""


class WindowDetokeniser:
    """For any tokenizer. The window holds the ids since the last but one whole character, so its work is bounded."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._window = list(prompt[-PROMPT_WINDOW:])
        self._read = len(self._window)
        self._shown = self._decoded()

    def push(self, ids: Sequence[int]) -> str:
        return "".join([self._one(token) for token in ids])

    def _one(self, token: int) -> str:
        self._window.append(token)
        text = self._decoded()
        held = len(self._window) - self._read
        if len(text) <= len(self._shown) or (text.endswith(REPLACEMENT) and held < LONGEST_HELD):
            if held >= LONGEST_HELD:
                self._slide()
            return ""
        new = text[len(self._shown) :]
        self._slide()
        return new

    def _slide(self) -> None:
        """What was new becomes the context of what comes."""
        self._window = self._window[self._read :]
        self._read = len(self._window)
        self._shown = self._decoded()

    def flush(self) -> str:
        text = self._decoded()
        new = text[len(self._shown) :]
        if new:
            self._slide()
        return new

    def _decoded(self) -> str:
        return self._tokenizer.decode(self._window, skip_special_tokens=self._skip_special)


class MarkedDetokeniser:
    """Shows some control tokens, each as a character that stands for it; `inner` leaves them out."""

    def __init__(self, inner: Detokeniser, marks: Mapping[int, str]) -> None:
        self._inner = inner
        self._marks = marks

    def push(self, ids: Sequence[int]) -> str:
        return "".join([self._one(token) for token in ids])

    def _one(self, token: int) -> str:
        mark = self._marks.get(token)
        return self._inner.push((token,)) if mark is None else self._inner.flush() + mark

    def flush(self) -> str:
        return self._inner.flush()


def _byte_characters() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others for characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(0x100 + index): byte for index, byte in enumerate(rest)}


BYTE_OF = _byte_characters()


def piece_bytes(token: str) -> bytes:
    """As the ByteLevel decoder does it: a token with a character outside the alphabet (an added one) is plain text."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode()


def metaspace_bytes(token: str) -> bytes:
    """As SentencePiece's tokens are read: a low line stands for a space, <0xE2> for a byte."""
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace("\u2581", " ").encode()


_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
