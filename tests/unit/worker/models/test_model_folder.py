"""A model folder that cannot be served is refused at once, by file and cause; one that can is read as it says."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.models.checkpoints import (
    EOS,
    VOCABULARY,
    random_checkpoint,
    successor_checkpoint,
    with_config,
    write_weights,
)

from octavo.worker.errors import ModelError
from octavo.worker.models.folder.checkpoint import inspect, servable
from octavo.worker.models.sources.resolve import resolve

Edit = Callable[[Path], object]
WEIGHTS = "model.safetensors"


def header(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def rewrite(change: Callable[[dict[str, Any]], object]) -> Edit:
    """Change the header and keep the data."""

    def edit(path: Path) -> None:
        entries, data = header(path)
        change(entries)
        encoded = json.dumps(entries).encode()
        path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)

    return edit


def twice(path: Path) -> None:
    entries, data = header(path)
    encoded = json.dumps(entries)[:-1].encode() + b', "model.norm.weight": {}}'
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)


def length_is(length: int) -> Edit:
    return lambda path: path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])


NORM = "model.norm.weight"
BAD_FILES: dict[str, tuple[Edit, str]] = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-1000]), "truncated"),
    "empty": (lambda path: path.write_bytes(b""), "0 bytes long"),
    "pointer": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        "LFS pointer",
    ),
    "huge header": (length_is(1 << 63), "header is 9223372036854775808 bytes"),
    "large header": (length_is(200 << 20), "header is 209715200 bytes"),
    "header beyond the file": (length_is(90 << 20), "truncated"),
    "not json": (lambda path: path.write_bytes((8).to_bytes(8, "little") + b"garbage!"), "not JSON"),
    "list": (lambda path: path.write_bytes((2).to_bytes(8, "little") + b"[]"), "not a JSON object"),
    "beyond the end": (rewrite(lambda all: all[NORM].update(shape=[1 << 30], data_offsets=[0, 4 << 30])), "truncated"),
    "overlap": (rewrite(lambda all: all[NORM].update(data_offsets=[4, 260])), "overlap"),
    "twice": (twice, "twice"),
    "shape": (rewrite(lambda all: all[NORM].update(shape=[65])), "needs 260 bytes and has 256"),
    "dtype": (rewrite(lambda all: all[NORM].update(dtype="F4")), "unknown dtype 'F4'"),
    "negative": (rewrite(lambda all: all[NORM].update(shape=[-64])), "not a whole number"),
    "no offsets": (rewrite(lambda all: all[NORM].pop("data_offsets")), "lacks a dtype"),
    "missing": (rewrite(lambda all: all.update(other=all.pop(NORM))), "lack model.norm.weight"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_weight_file_is_refused_by_its_cause(tmp_path: Path, name: str) -> None:
    folder = random_checkpoint(tmp_path)
    edit, cause = BAD_FILES[name]
    edit(folder / WEIGHTS)
    with pytest.raises(ModelError, match=cause) as caught:
        inspect(folder)
    assert caught.value.reason == "ModelInvalid"
    assert str(folder) in caught.value.file


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path, shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match="incomplete") as caught:
        inspect(folder)
    assert (caught.value.reason, Path(caught.value.file).name) == ("ModelNotFound", "model-00002-of-00003.safetensors")


def test_only_what_the_index_assigns_is_read(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path, shards=2)
    random_checkpoint(tmp_path / "other", seed=9)
    (tmp_path / "other" / WEIGHTS).rename(folder / "consolidated.safetensors")
    (folder / WEIGHTS).write_bytes(b"stray")
    tensors = inspect(folder).tensors
    one, other = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    assert {tensor.file.name for tensor in tensors.values()} == {one, other}
    stale = {name: tensor for name, tensor in load_file(folder / one).items() if name != NORM} | {
        NORM: np.zeros(64, np.float32), "model.layers.9.strange": np.zeros(1, np.float32)
    }  # fmt: skip
    assert tensors[NORM].file.name == other, "the copy in the first shard is stale"
    save_file(stale, folder / one)
    assert inspect(folder).tensors[NORM] == tensors[NORM]
    assert "model.layers.9.strange" not in inspect(folder).tensors


@pytest.mark.parametrize(
    "name", ["model.layers.2.self_attn.q_proj.bias", "model.layers.0.self_attn.k_norm.weight", "score.weight"]
)
def test_a_tensor_that_the_config_does_not_announce_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = random_checkpoint(tmp_path)
    write_weights(folder, {**load_file(folder / WEIGHTS), name: np.zeros(64, np.float32)})
    with pytest.raises(ModelError, match=f"LlamaForCausalLM .*has no {name}") as caught:
        inspect(folder)
    assert (caught.value.reason, Path(caught.value.file).name) == ("ModelInvalid", WEIGHTS)


def test_rotary_frequencies_in_old_checkpoints_are_ignored(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    write_weights(folder, {**load_file(folder / WEIGHTS), name: np.zeros(8, np.float32)})
    assert name not in inspect(folder).tensors


def test_tied_models_need_no_head_and_untied_ones_do(tmp_path: Path) -> None:
    tied = random_checkpoint(tmp_path / "tied", config={"tie_word_embeddings": True})
    assert inspect(tied).notes == ()
    with pytest.raises(ModelError, match=r"lack lm_head\.weight"):
        inspect(with_config(tied, tie_word_embeddings=False))
    both = with_config(random_checkpoint(tmp_path / "both"), tie_word_embeddings=True)
    assert "lm_head.weight" not in inspect(both).tensors
    assert "lm_head.weight is ignored" in inspect(both).notes[0]


@pytest.mark.parametrize(("eos", "ids"), [([EOS, 7], (EOS, 7)), (7, (7,)), (None, ())])
def test_the_generation_config_decides_what_ends_a_text(tmp_path: Path, eos: Any, ids: tuple[int, ...]) -> None:
    folder = successor_checkpoint(tmp_path, eos=eos)
    assert inspect(folder).eos_ids == ids
    (folder / "generation_config.json").unlink()
    assert inspect(folder).eos_ids == (EOS,)


@pytest.mark.parametrize("eos", [VOCABULARY, [EOS, 2**32], 2**40])
def test_an_end_of_text_outside_the_vocabulary_is_refused_where_it_stands(tmp_path: Path, eos: Any) -> None:
    folder = with_config(successor_checkpoint(tmp_path, eos=eos), eos_token_id=VOCABULARY)
    with pytest.raises(ModelError, match=rf"eos_token_id.*vocabulary of {VOCABULARY}") as caught:
        inspect(folder)
    assert (caught.value.reason, Path(caught.value.file).name) == ("ModelInvalid", "generation_config.json")
    (folder / "generation_config.json").unlink()
    with pytest.raises(ModelError, match="eos_token_id") as caught:
        inspect(folder)
    assert Path(caught.value.file).name == "config.json"


@pytest.mark.parametrize(
    ("edit", "reason", "cause"),
    [
        (lambda folder: (folder / "config.json").unlink(), "ModelNotFound", "config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "ModelInvalid", "is not JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "ModelInvalid", "holds a list"),
        (lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": "x"}'), "ModelInvalid", "eos"),
        (lambda folder: (folder / WEIGHTS).unlink(), "ModelNotFound", "safetensors"),
    ],
)
def test_a_missing_or_broken_file_is_named(tmp_path: Path, edit: Edit, reason: str, cause: str) -> None:
    folder = random_checkpoint(tmp_path)
    edit(folder)
    with pytest.raises(ModelError, match=cause) as caught:
        inspect(folder)
    assert caught.value.reason == reason


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """As a pod's user is: root may read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = random_checkpoint(Path(name) / "model")
        for file in folder.iterdir():
            file.chmod(0o644)
        yield folder


@pytest.mark.parametrize("name", ["", "config.json", WEIGHTS, "tokenizer.json", "chat_template.jinja"])
def test_what_may_not_be_read_is_named_with_the_way_out(open_folder: Path, request: Any, name: str) -> None:
    (open_folder / name).chmod(0)
    request.getfixturevalue("unprivileged")
    with pytest.raises(ModelError, match=r"permission denied to user .*chmod") as caught:
        servable(resolve(str(open_folder)))
    assert caught.value.reason == "ModelUnreadable"
    assert Path(caught.value.file) == open_folder / (name or "config.json")


@pytest.mark.parametrize(
    "uri", ["bundled://other", "s3://bucket/key", "file://host/path", "file:///no/such", "/no/such"]
)
def test_a_uri_that_leads_nowhere_is_named(uri: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(uri)
    assert caught.value.file == uri


def test_paths_and_file_uris_lead_to_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a model"
    folder.mkdir()
    assert resolve(str(folder)) == resolve(f"file://{str(folder).replace(' ', '%20')}") == folder.resolve()
