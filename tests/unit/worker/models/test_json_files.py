"""JSON of hostile files takes no more memory than the file and 64 MiB, and is refused by name."""

import json
import tracemalloc
from pathlib import Path

import pytest
from support.models.checkpoints import random_checkpoint

from octavo.worker.errors import ModelError
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.models.folder.json_files import SETTINGS, read_json
from octavo.worker.models.folder.safetensors_header import read_header

ROOM = 64 << 20
VALUES = {"lists": b"[],", "objects": b"{},", "texts": b'"ab",', "numbers": b"1.5,"}


def filled(value: bytes, size: int) -> bytes:
    return b'{"x": [' + value * (size // len(value)) + b"0]}"


def peak(path: Path) -> int:
    tracemalloc.start()
    try:
        read_json(path, required=True)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", VALUES)
def test_a_settings_file_of_as_many_values_as_may_be_stays_within_its_room(tmp_path: Path, kind: str) -> None:
    path, value = tmp_path / "config.json", VALUES[kind]
    signs = sum(value.count(sign) for sign in (b",", b":", b"[", b"{"))
    path.write_bytes(filled(value, len(value) * ((SETTINGS.values - 10) // signs)))
    assert peak(path) < path.stat().st_size + ROOM


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
def test_a_settings_file_of_more_is_refused_by_name_before_it_is_parsed(tmp_path: Path, name: str, kind: str) -> None:
    folder = random_checkpoint(tmp_path, shards=2)
    (folder / name).write_bytes(filled(VALUES[kind], SETTINGS.size - 100))
    with pytest.raises(ModelError, match="holds more JSON values than the limit") as caught:
        inspect(folder)
    assert Path(caught.value.file).name == name


def test_a_settings_file_that_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(SETTINGS.size + 1)
    with pytest.raises(ModelError, match="over the limit"):
        read_json(path, required=True)


def test_a_header_of_too_many_values_is_refused_by_name(tmp_path: Path) -> None:
    header = filled(b"[],", 4 << 20)
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match="holds more JSON values") as caught:
        read_header(path)
    assert Path(caught.value.file) == path


def test_the_index_of_the_largest_models_is_read(tmp_path: Path) -> None:
    tensors = {
        f"model.layers.{n // 1000}.mlp.experts.{n % 1000}.down_proj.weight": "model-1.safetensors"
        for n in range(90_000)
    }
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": tensors}))
    assert peak(path) < path.stat().st_size + ROOM
