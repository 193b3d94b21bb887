"""What a model folder holds, without torch: shape, tensors, limits. A bad model fails here, in seconds.

config.json              required
model.safetensors        or model.safetensors.index.json and the shards that it names, and no other file
generation_config.json   EOS ids
tokenizer.json, ...      see text_files.py
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.worker.errors import INVALID, NOT_FOUND, ModelError, unreadable
from octavo.worker.models.config.model_config import ModelConfig
from octavo.worker.models.config.tensor_specs import EMBEDDING
from octavo.worker.models.folder.config import read_config, read_eos_ids, says_dtype
from octavo.worker.models.folder.json_files import read_json
from octavo.worker.models.folder.safetensors_header import Tensor, read_header
from octavo.worker.models.folder.tensors import check_tensors, notes
from octavo.worker.models.folder.text_files import TEXT_FILES, check_text_files

__all__ = ["Checkpoint", "ModelError", "inspect", "servable"]

_STORED = {"F64": "float32", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}  # a GPU runs in that
_INDEX = "model.safetensors.index.json"
MAX_NAME_BYTES = 255  # of a file
MODULUS = 1 << 256  # of the sum that ranks make of the weights


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """size_bytes: of the weights. outline: a hash of config, text files, and the names, types and
    shapes of the tensors. notes: for the log."""

    folder: Path
    config: ModelConfig
    tensors: Mapping[str, Tensor]
    eos_ids: tuple[int, ...]
    size_bytes: int
    outline: str
    notes: tuple[str, ...] = ()

    @property
    def context_length(self) -> int:
        return self.config.context_length


def digest_of(outline: str, weights: int) -> str:
    """Of a model. outline: of its Checkpoint. weights: the sum over all ranks of what they make of the values
    (weights_digest.py)."""
    return hashlib.blake2b(outline.encode() + (weights % MODULUS).to_bytes(32, "big"), digest_size=16).hexdigest()


def servable(model_dir: Path) -> Checkpoint:
    """`inspect`, and what routers need of the folder: asked before a process is started. Raises ModelError."""
    checkpoint = inspect(model_dir)
    try:
        check_text_files(model_dir)
    except OSError as error:
        raise unreadable(model_dir, error) from error
    return checkpoint


def inspect(model_dir: Path) -> Checkpoint:
    """Read and check what an engine needs, all but the weights themselves. Raises ModelError."""
    try:
        return _inspect(model_dir)
    except OSError as error:
        raise unreadable(model_dir, error) from error


def _inspect(model_dir: Path) -> Checkpoint:
    if not model_dir.is_dir():
        raise ModelError(NOT_FOUND, model_dir, "no such folder; a model is a Hugging Face folder with config.json")
    config, raw = read_config(model_dir)
    eos_ids = read_eos_ids(model_dir, raw, config.vocabulary)
    weights = _weights(model_dir)
    tensors = _indexed(model_dir, weights) if weights.name == _INDEX else read_header(weights)
    expected = config.tensors()
    check_tensors(weights, config, tensors)
    if not says_dtype(raw):
        config = replace(config, dtype=_STORED[tensors[EMBEDDING].dtype])
    return Checkpoint(
        folder=model_dir,
        config=config,
        tensors={name: tensors[name] for name in expected},
        eos_ids=eos_ids,
        size_bytes=sum(tensors[name].end - tensors[name].begin for name in expected),
        outline=_outline(model_dir, tensors.values()),
        notes=notes(config, tensors),
    )


def _weights(folder: Path) -> Path:
    """The file that lists the tensors: the index, or the only one."""
    index, single = folder / _INDEX, folder / "model.safetensors"
    if index.exists():
        return index
    if not single.exists():
        raise ModelError(NOT_FOUND, single, f"no such file, and no {_INDEX}; weights must be safetensors")
    return single


def _indexed(folder: Path, index: Path) -> dict[str, Tensor]:
    """Only what the index assigns counts: stray files and stale copies in other shards are not read."""
    assigned = read_json(index, required=True).get("weight_map")
    if not isinstance(assigned, dict) or not all(isinstance(file, str) for file in assigned.values()):
        raise ModelError(INVALID, index, "weight_map: it must map tensor names to file names")
    shards: dict[str, dict[str, Tensor]] = {}
    for file in sorted(set(assigned.values())):
        if not _is_name(file):
            raise ModelError(INVALID, index, f"weight_map: {file!r} is not a file of this folder")
        if not (folder / file).exists():
            raise ModelError(
                NOT_FOUND, folder / file, f"no such file, but {_INDEX} names it; the download is incomplete"
            )
        shards[file] = read_header(folder / file)
    for name, file in assigned.items():
        if name not in shards[file]:
            raise ModelError(INVALID, folder / file, f"lacks the tensor {name!r} that {_INDEX} assigns to it")
    return {name: shards[file][name] for name, file in assigned.items()}


def _is_name(file: str) -> bool:
    """Whether it can be a file of a folder, and of no other one."""
    return Path(file).name == file not in ("", "..") and file.isprintable() and len(file.encode()) <= MAX_NAME_BYTES


def _outline(folder: Path, tensors: Iterable[Tensor]) -> str:
    """Not of the values: ranks read them, and weights_digest.py adds them. Nor of the tensors' places in files, which
    change nothing."""
    digest = hashlib.blake2b(digest_size=16)
    for name in ("config.json", *TEXT_FILES):
        path = folder / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(len(content).to_bytes(8, "little") + content)
    for tensor in sorted(tensors, key=lambda one: one.name):
        digest.update(repr((tensor.name, tensor.dtype, tensor.shape)).encode())
    return digest.hexdigest()
