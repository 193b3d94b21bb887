"""A tokenizer that is made of parts is the one that the tokenizers library reads from the file."""

import json
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from support.patience import PATIENCE_S
from support.router.vocabularies import byte_level, files, metaspace, unigram
from tokenizers import AddedToken, Tokenizer

from octavo.router.text.model_files import ModelFilesInvalid, tokenizer_of
from octavo.router.text.tokenizer_parts import in_parts

Json = dict[str, Any]  # Any: a tokenizer.json


def described(tokenizer: Tokenizer) -> Json:
    return dict(json.loads(tokenizer.to_str()))


def with_added() -> Tokenizer:
    """Tokens beyond its vocabulary, special and not, that take the spaces around them."""
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken("plain", lstrip=True), AddedToken("alone", single_word=True, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|call|>", rstrip=True)])
    tokenizer.add_tokens(["after"])
    return tokenizer


def with_options() -> Tokenizer:
    found = described(byte_level())
    found["model"] |= {"ignore_merges": True, "fuse_unk": True, "dropout": None, "end_of_word_suffix": ""}
    found["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    return Tokenizer.from_str(json.dumps(found))


@pytest.mark.parametrize("make", [byte_level, metaspace, with_added, with_options])
@pytest.mark.parametrize("as_text", [False, True])
def test_it_is_the_same_as_the_librarys(make: Callable[[], Tokenizer], as_text: bool) -> None:
    found = described(make())
    merges = found["model"]["merges"]
    assert merges and isinstance(merges[0], list)
    if as_text:  # as files have them that were written before 2024
        found["model"]["merges"] = [" ".join(pair) for pair in merges]
    made = in_parts(found)
    assert made is not None and json.loads(made.to_str()) == json.loads(Tokenizer.from_str(json.dumps(found)).to_str())
    text = "the  quick plain brown alone fox<|call|> after 12\u00e9\U0001f336 <s>"
    assert made.encode(text).ids == Tokenizer.from_str(json.dumps(found)).encode(text).ids


def test_another_model_and_unknown_fields_are_left_to_the_library() -> None:
    assert in_parts(described(unigram())) is None
    for change in ({"model": {**described(byte_level())["model"], "later": 1}}, {"added_tokens": [{"content": "x"}]}):
        assert in_parts({**described(byte_level()), **change}) is None


class Handshakes(list[object]):
    """Each merge is read only after another thread has run."""

    def __init__(self, merges: list[object]) -> None:
        super().__init__(merges)
        self.asked, self.answered = SimpleQueue[int](), SimpleQueue[int]()

    def __iter__(self) -> Iterator[object]:
        for index, merge in enumerate(super().__iter__()):
            self.asked.put(index)
            assert self.answered.get(timeout=PATIENCE_S) == index
            yield merge

    def answer(self) -> None:
        for _ in range(len(self)):
            self.answered.put(self.asked.get(timeout=PATIENCE_S))


def test_other_threads_run_while_the_merges_are_read() -> None:
    found = described(byte_level())
    merges = found["model"]["merges"] = Handshakes(found["model"]["merges"])
    other = Thread(target=merges.answer)
    other.start()
    assert in_parts(found) is not None
    other.join(PATIENCE_S)
    assert not other.is_alive()


@pytest.mark.parametrize(
    "model", [{"merges": ["a"]}, {"merges": [["no", "such"]]}, {"vocab": {"a": -1}}, {"unk_token": 5}, {"dropout": 7.0}]
)
def test_what_is_wrong_with_a_file_is_said_by_the_library(model: Json) -> None:
    found = described(byte_level())
    found["model"] |= model
    served = files(byte_level()) | {"tokenizer.json": json.dumps(found).encode()}
    with pytest.raises(ModelFilesInvalid, match=r"tokenizer\.json cannot be used: "):
        tokenizer_of(served, found)
