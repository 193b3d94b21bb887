"""A BPE tokenizer made of parts, so that other threads run meanwhile.

`Tokenizer.from_str` keeps the interpreter's lock from its begin to its end: 0.1 s for 49,000 tokens, half a second for
150,000, in which a router neither reads a request nor writes a token. Here the merges, which are most of the work, are
read one by one. What still keeps the lock all along is shorter: to parse the file's JSON, to read the vocabulary, to
make the model of what was read, and to add the added tokens. The tokenizer is the same.
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
    tokenizers library does with a file that cannot be used; the library may still accept some of these as a whole."""
    model, tokens = described.get("model"), described.get("added_tokens", [])
    if not isinstance(model, dict) or not isinstance(tokens, list) or not _is_known(model, tokens):
        return None
    options = {name: model[name] for name in OPTIONS if model.get(name) is not None}
    bare = {**described, "added_tokens": [], "model": {**model, "vocab": {}, "merges": [], "unk_token": None}}
    tokenizer = Tokenizer.from_str(json.dumps(bare))
    tokenizer.model = models.BPE(model["vocab"], _Merges(model["merges"]), **options)
    # In one call: each makes again what finds added tokens in a text, for all that are there.
    tokenizer.add_tokens([AddedToken(**{name: token[name] for name in TOKEN_FIELDS - {"id"}}) for token in tokens])
    return tokenizer


def _is_known(model: Mapping[str, object], tokens: Sequence[object]) -> bool:
    fields = {"type", "vocab", "merges", *OPTIONS}
    return (
        model.get("type") == "BPE"
        and isinstance(model.get("vocab"), dict)
        and isinstance(merges := model.get("merges"), list)
        and (all(isinstance(merge, list) for merge in merges) or all(_is_text_merge(merge) for merge in merges))
        and model.keys() <= fields
        and all(isinstance(token, dict) and token.keys() == TOKEN_FIELDS and _is_id(token["id"]) for token in tokens)
    )


def _is_text_merge(merge: object) -> bool:
    """The library takes a text that begins with #version for a comment, wherever it stands."""
    return isinstance(merge, str) and not merge.startswith("#version")


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32
