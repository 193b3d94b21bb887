"""A model folder's tokenizer.json: counts tokens, and makes prompts of exactly as many tokens as were asked for."""

from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from octavo.bench.arithmetic.datasets import DatasetError
from octavo.errors import OctavoError

# Ids of prompts where no tokenizer says which there are: every current vocabulary has them, and few of their control
# tokens lie there.
UNKNOWN = range(1_000, 10_000)
POOL, CANDIDATES, FEWEST = 2_000, 20_000, 16
ATTEMPTS = 20


class TokenizerError(OctavoError):
    """The folder has no tokenizer that can be used; the message names the file."""


class Tokens:
    """One tokenizer. ids: its vocabulary without control tokens and added ones, ascending."""

    def __init__(self, folder: Path) -> None:
        """folder: or the tokenizer.json itself. Raises TokenizerError."""
        file = folder / "tokenizer.json" if folder.is_dir() else folder
        try:
            self._tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(f"{file}: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        added = set(self._tokenizer.get_added_tokens_decoder())
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=False).values()
        self.ids = sorted(number for number in vocabulary if number not in added)

    def count(self, text: str) -> int:
        """Tokens of a text alone, without what a model wants around it."""
        return len(self.encode(text))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text


class Ids:
    """Writes prompts as ids."""

    def __init__(self, vocabulary: "range | list[int]") -> None:
        self._vocabulary = vocabulary

    def draw(self, count: int, source: Random) -> list[int]:
        return source.choices(self._vocabulary, k=count)

    def prompt(self, ids: list[int], source: Random) -> list[int]:
        return ids


class Words:
    """Writes prompts as text, out of words that are one token each wherever they stand."""

    def __init__(self, tokens: Tokens, source: Random) -> None:
        """Raises DatasetError where a vocabulary has no such words."""
        self._tokens = tokens
        self._pool = _pool(tokens, source)
        if not self._pool:
            raise DatasetError("--tokenizer: its vocabulary has no word that encodes to itself")

    def draw(self, count: int, source: Random) -> list[int]:
        return source.choices(self._pool, k=count)

    def prompt(self, ids: list[int], source: Random) -> str:
        """Chat templates strip a message: neither does it begin nor end with a space."""
        wanted, tried = len(ids), ids
        for _ in range(ATTEMPTS):
            text = self._tokens.decode(tried).strip()
            found = self._tokens.encode(text)
            if len(found) == wanted:
                return text
            tried = found[:wanted] + self.draw(wanted - len(found), source)
        raise DatasetError(f"--tokenizer: no text of exactly {wanted} tokens was found in {ATTEMPTS} attempts")


def _pool(tokens: Tokens, source: Random) -> list[int]:
    """Words with a space before them where the vocabulary has them, else anything that stays itself when repeated."""
    candidates = source.sample(tokens.ids, k=min(CANDIDATES, len(tokens.ids)))
    words: list[int] = []
    others: list[int] = []
    for number in candidates:
        text = tokens.decode([number, number])
        if not text.isascii() or tokens.encode(text) != [number, number]:
            continue
        first, _, second = text.strip().partition(" ")
        if first.isalpha() and first == second:
            words.append(number)
        elif text.isalpha():
            others.append(number)
        if len(words) == POOL:
            break
    return words if len(words) >= FEWEST else words + others
