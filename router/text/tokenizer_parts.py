"""A BPE tokenizer made of parts, so that other threads run meanwhile.

`Tokenizer.from_str` keeps the interpreter's lock from its begin to its end: 0.1 s for 49,000 tokens, half a second for
150,000, in which a router neither reads a request nor writes a token. Here the merges, which are most of the work, are
read one by one, and nothing else takes as long. The tokenizer is the same.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

OPTIONS = (
    "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
    "ignore_merges",
)  # fmt: skip
TOKEN_FIELDS = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}


class _Merges(Sequence[tuple[str, str]]):
    """Pairs of a file, each made when it is read."""

    def __init__(self, written: Sequence[object]) -> None:
        self._written = written

    def __len__(self) -> int:
        return len(self._written)

    def __getitem__(self, index: int) -> tuple[str, str]:  # type: ignore[override]  # slices are not read
        return _pair(self._written[index])

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return map(_pair, self._written)


def _pair(written: Any) -> tuple[str, str]:  # Any: JSON
    """Of "a b", or of ["a", "b"]. Raises ValueError or TypeError."""
    first, second = written.split(" ") if isinstance(written, str) else written
    return first, second


def in_parts(described: Mapping[str, object]) -> Tokenizer | None:
    """The tokenizer of a tokenizer.json; None if it is no BPE, or has what is not known here. Raises whatever the
    tokenizers library does with a file that cannot be used."""
    model, tokens = described.get("model"), described.get("added_tokens") or []
    if not isinstance(model, dict) or not isinstance(tokens, list) or not _is_known(model, tokens):
        return None
    options = {name: model[name] for name in OPTIONS if model.get(name) is not None}
    bare = {**described, "added_tokens": [], "model": {**model, "vocab": {}, "merges": [], "unk_token": None}}
    tokenizer = Tokenizer.from_str(json.dumps(bare))
    tokenizer.model = models.BPE(model["vocab"], _Merges(model["merges"]), **options)
    for token in tokens:
        made = AddedToken(**{name: value for name, value in token.items() if name != "id"})
        (tokenizer.add_special_tokens if token["special"] else tokenizer.add_tokens)([made])
    return tokenizer


def _is_known(model: Mapping[str, object], tokens: Sequence[object]) -> bool:
    fields = {"type", "vocab", "merges", *OPTIONS}
    return (
        model.get("type") == "BPE"
        and isinstance(model.get("vocab"), dict)
        and isinstance(model.get("merges"), list)
        and model.keys() <= fields
        and all(isinstance(token, dict) and token.keys() == TOKEN_FIELDS for token in tokens)
    )
