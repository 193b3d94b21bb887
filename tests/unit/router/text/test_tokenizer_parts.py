"""A tokenizer that is made of parts is the one that the tokenizers library reads from the file."""

import json
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from support.patience import PATIENCE_S
from support.router.vocabularies import byte_level, files, metaspace, unigram
from tokenizers import AddedToken, Tokenizer, models

from octavo.router.text import model_files
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


def with_thousands_added() -> Tokenizer:
    tokenizer = byte_level()
    tokens = [AddedToken(f"<|{index}|>", special=index % 3 == 0, lstrip=index % 5 == 0) for index in range(4000)]
    tokenizer.add_tokens([*tokens, AddedToken("the", special=True), AddedToken("<|7|>", special=True)])
    return tokenizer


@pytest.mark.parametrize("make", [byte_level, metaspace, with_added, with_thousands_added, with_options])
@pytest.mark.parametrize("as_text", [False, True])
def test_it_is_the_same_as_the_librarys(make: Callable[[], Tokenizer], as_text: bool) -> None:
    found = described(make())
    merges = found["model"]["merges"]
    assert merges and isinstance(merges[0], list)
    if as_text:  # as files have them that were written before 2024
        found["model"]["merges"] = [" ".join(pair) for pair in merges]
    made = in_parts(found)
    assert made is not None and json.loads(made.to_str()) == json.loads(Tokenizer.from_str(json.dumps(found)).to_str())
    text = "the  quick plain brown alone fox<|call|> after 12\u00e9\U0001f336 <s> <|3999|> <|7|>"
    assert made.encode(text).ids == Tokenizer.from_str(json.dumps(found)).encode(text).ids


def test_another_model_and_unknown_fields_are_left_to_the_library() -> None:
    assert in_parts(described(unigram())) is None
    for change in ({"model": {**described(byte_level())["model"], "later": 1}}, {"added_tokens": [{"content": "x"}]}):
        assert in_parts({**described(byte_level()), **change}) is None


def small(**changes: object) -> Json:
    """Of five tokens. changes: of its model, and `id`, that of an added token."""
    found = described(Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "#version": 3, "s": 4, "#versions": 5}, [])))
    if "id" in changes:
        token = {name: False for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        found["added_tokens"] = [{"id": changes.pop("id"), "content": "<x>", **token}]
    found["model"] |= {"merges": ["a b"]} | changes
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {"unk_token": "<unk>"},
        {"unk_token": "<unk>", "id": 6},
        {"merges": ["#version: 0.2", "a b"]},
        {"merges": ["#version s", "a b"]},
        {"merges": ["a b", "#version s"]},
        {"merges": [["#version", "s"], ["a", "b"]]},
        {"merges": []},
    ],
)
def test_a_file_that_the_library_reads_is_read_alike(changes: Json) -> None:
    found = small(**changes)
    served = {"tokenizer.json": json.dumps(found).encode()}
    known = Tokenizer.from_str(json.dumps(found))
    made = in_parts(found) or known
    assert json.loads(made.to_str()) == json.loads(known.to_str()) and made.encode("ab").ids == known.encode("ab").ids
    if "unk_token" not in changes:  # which the library misses when it reads a character that it does not know
        assert json.loads(tokenizer_of(served, found).to_str()) == json.loads(known.to_str())


@pytest.mark.parametrize(
    "changes",
    [
        {"merges": ["a b", ["#version", "s"]]},
        {"merges": [["a", "b"], "#version s"]},
        {"id": -1},
        {"id": 2**32},
        {"id": 6.0},
        {"id": True},
        {"id": "6"},
    ],
)
def test_a_file_that_the_library_refuses_is_refused_in_its_words(changes: Json) -> None:
    found = small(**changes)
    with pytest.raises(Exception, match="at line 1") as known:
        Tokenizer.from_str(json.dumps(found))
    with pytest.raises(ModelFilesInvalid) as refused:
        tokenizer_of({"tokenizer.json": json.dumps(found).encode()}, found)
    assert str(known.value) in str(refused.value)


class PanicException(BaseException):
    """Named as the one of the library, which cannot be imported."""


@pytest.mark.parametrize("error", [Exception("x"), ValueError("x"), RuntimeError("x"), PanicException("x")])
def test_whatever_parts_fail_with_the_library_reads_the_file(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "in_parts", raising(error))
    found = described(byte_level())
    made = tokenizer_of({"tokenizer.json": json.dumps(found).encode()}, found)
    assert json.loads(made.to_str()) == found


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_what_is_no_fault_of_the_file_is_raised_on(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "in_parts", raising(error))
    with pytest.raises(type(error)):
        tokenizer_of(files(byte_level()), described(byte_level()))


def raising(error: BaseException) -> Callable[[object], None]:
    def parts(_: object) -> None:
        raise error

    return parts


class Handshakes(list[object]):
    """Each merge is read, and checked before, only after another thread has run."""

    def __init__(self, merges: list[object]) -> None:
        super().__init__(merges)
        self.asked, self.answered = SimpleQueue[int | None](), SimpleQueue[int]()

    def __iter__(self) -> Iterator[object]:
        for index, merge in enumerate(super().__iter__()):
            self.asked.put(index)
            assert self.answered.get(timeout=PATIENCE_S) == index
            yield merge

    def answer(self) -> None:
        while (index := self.asked.get(timeout=PATIENCE_S)) is not None:
            self.answered.put(index)


def test_other_threads_run_while_the_merges_are_read() -> None:
    found = described(byte_level())
    merges = found["model"]["merges"] = Handshakes(found["model"]["merges"])
    other = Thread(target=merges.answer)
    other.start()
    try:
        assert in_parts(found) is not None
    finally:
        merges.asked.put(None)
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
