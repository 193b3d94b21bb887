"""What a router could not use of a model's text files, the worker refuses before anything is served."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.models.checkpoints import random_checkpoint

from octavo.router.text.model_files import ModelFilesInvalid
from octavo.router.text.tokenizer import ModelTokenizer
from octavo.worker.errors import ModelError
from octavo.worker.models.folder.checkpoint import inspect, servable
from octavo.worker.models.folder.text_files import SERVED_FILES

Edit = Callable[[Path], object]


def holds(name: str, content: bytes | dict[str, Any] | list[Any]) -> Edit:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda folder: (folder / name).write_bytes(data)


def without_model(folder: Path) -> None:
    described = json.loads((folder / "tokenizer.json").read_bytes())
    holds("tokenizer.json", {**described, "model": None})(folder)


def odd_token(folder: Path) -> None:
    described = json.loads((folder / "tokenizer.json").read_bytes())
    holds("tokenizer.json", {**described, "added_tokens": [{"content": "<s>"}]})(folder)


BAD: dict[str, tuple[Edit, str, str]] = {
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json", "no such file"),
    "tokenizer cut": (holds("tokenizer.json", b"{"), "tokenizer.json", "is not JSON"),
    "tokenizer list": (holds("tokenizer.json", []), "tokenizer.json", "holds a list"),
    "tokenizer without model": (without_model, "tokenizer.json", "model"),
    "token without id": (odd_token, "tokenizer.json", "added_tokens"),
    "settings cut": (holds("tokenizer_config.json", b"{"), "tokenizer_config.json", "is not JSON"),
    "settings list": (holds("tokenizer_config.json", []), "tokenizer_config.json", "holds a list"),
    "byte order mark": (holds("tokenizer_config.json", b"\xef\xbb\xbf{}"), "tokenizer_config.json", "is not JSON"),
    "no number": (holds("tokenizer_config.json", b'{"n": NaN}'), "tokenizer_config.json", "NaN"),
    "utf-16": (holds("generation_config.json", "{}".encode("utf-16")), "generation_config.json", "is not JSON"),
    "hot": (holds("generation_config.json", {"temperature": 3}), "generation_config.json", "temperature"),
    "cold": (holds("generation_config.json", {"temperature": True}), "generation_config.json", "temperature"),
    "top_p": (holds("generation_config.json", {"top_p": 1.5}), "generation_config.json", "top_p"),
    "top_k": (holds("generation_config.json", {"top_k": 4.5}), "generation_config.json", "top_k"),
    "min_p": (holds("generation_config.json", {"min_p": 2}), "generation_config.json", "min_p"),
    "repetition": (
        holds("generation_config.json", {"repetition_penalty": -1}),
        "generation_config.json",
        "repetition_penalty",
    ),
    "top_k low": (holds("generation_config.json", {"top_k": -2}), "generation_config.json", "top_k"),
}
GOOD: dict[str, Edit] = {
    "as written": lambda folder: None,
    "tokenizer alone": lambda folder: [(folder / name).unlink() for name in SERVED_FILES[1:4]],
    "advice": holds("generation_config.json", {"temperature": 0, "top_p": 1, "top_k": -1}),
    "nulls": holds("generation_config.json", {"temperature": None, "top_p": None, "top_k": None}),
}


def served(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SERVED_FILES if (folder / name).is_file()}


@pytest.mark.parametrize("name", BAD)
def test_what_a_router_cannot_use_is_refused_by_the_worker_and_named(tmp_path: Path, name: str) -> None:
    edit, file, cause = BAD[name]
    folder = random_checkpoint(tmp_path)
    edit(folder)
    with pytest.raises(ModelFilesInvalid):
        ModelTokenizer(served(folder), 64)
    with pytest.raises(ModelError, match=cause) as caught:
        servable(folder)
    assert (caught.value.reason, Path(caught.value.file).name) == ("ModelInvalid", file)


@pytest.mark.parametrize("name", GOOD)
def test_what_the_worker_lets_pass_a_router_can_use(tmp_path: Path, name: str) -> None:
    folder = random_checkpoint(tmp_path)
    GOOD[name](folder)
    assert servable(folder) == inspect(folder)
    ModelTokenizer(served(folder), 64)


def test_a_slow_tokenizer_alone_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path)
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    with pytest.raises(ModelError, match=r"tokenizer\.model is not enough.*save_pretrained"):
        servable(folder)
