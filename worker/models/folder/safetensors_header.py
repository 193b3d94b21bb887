"""The header of a safetensors file, read and checked without torch: every byte must belong to one tensor.

    8 bytes  N, little endian
    N bytes  JSON: name -> {dtype, shape, data_offsets: [begin, end)}, relative to the end of the header
    the rest the tensors, without gaps or overlaps

No more is read than the header, so a lie in it costs no memory.
"""

import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from octavo.worker.errors import INVALID, NOT_FOUND, ModelError, unreadable
from octavo.worker.models.folder.json_files import parse_header

WIDTH = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2, "U16": 2}
WIDTH |= {"F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1, "BOOL": 1}
MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
MAX_DIMENSIONS = 16  # no tensor that is read here has more than two; the product of many takes for ever
_LFS = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies: bytes begin .. end-1 of `file`."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of one file by name. Raises ModelError naming the file and what is wrong with it."""
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as file:
            prefix = file.read(64)
            length = _header_length(path, prefix, size)
            file.seek(8)
            encoded = file.read(length)
    except FileNotFoundError:
        raise ModelError(NOT_FOUND, path, "no such file") from None
    except OSError as error:
        raise unreadable(path, error) from error
    tensors = [_tensor(path, name, entry, 8 + length) for name, entry in _entries(path, encoded)]
    _check_layout(path, tensors, 8 + length, size)
    return {tensor.name: tensor for tensor in tensors}


def _header_length(path: Path, prefix: bytes, size: int) -> int:
    if prefix.startswith(_LFS):
        _invalid(path, "is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
    if size < 8:
        _invalid(path, f"is {size} bytes long, too short for a safetensors header; the download did not finish")
    length = int.from_bytes(prefix[:8], "little")
    if length > MAX_HEADER_BYTES:
        _invalid(path, f"says its header is {length} bytes long, over the limit of {MAX_HEADER_BYTES}; not safetensors")
    if length > size - 8:
        _invalid(path, f"is truncated: its header needs {length + 8} bytes and the file has {size}")
    return length


def _entries(path: Path, encoded: bytes) -> list[tuple[str, Any]]:
    """(name, entry) pairs of the header's JSON, `__metadata__` left out."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
            _invalid(path, f"names {twice!r} twice in its header")
        return made

    header = parse_header(path, encoded, unique)
    if not isinstance(header, dict):
        _invalid(path, "its header is not a JSON object")
    return [(name, entry) for name, entry in header.items() if name != "__metadata__"]


def _tensor(path: Path, name: str, entry: Any, data_start: int) -> Tensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise ModelError(INVALID, path, f"tensor {name!r} lacks a dtype, a shape or two offsets") from None
    if not all(type(number) is int and 0 <= number < 2**63 for number in (*shape, begin, end)):
        _invalid(path, f"tensor {name!r} has a shape or offset that is not a whole number of 63 bits")
    if len(shape) > MAX_DIMENSIONS:
        _invalid(path, f"tensor {name!r} has {len(shape)} dimensions, over the limit of {MAX_DIMENSIONS}")
    if not isinstance(dtype, str) or dtype not in WIDTH:
        _invalid(path, f"tensor {name!r} has the unknown dtype {dtype!r}")
    needed = math.prod(shape) * WIDTH[dtype]
    if end - begin != needed:
        text = f"tensor {name!r} of shape {list(shape)} in {dtype} needs {needed} bytes and has {end - begin}"
        _invalid(path, text)
    return Tensor(name, path, dtype, shape, data_start + begin, data_start + end)


def _check_layout(path: Path, tensors: list[Tensor], start: int, size: int) -> None:
    """Tensors must follow one another without overlap or gap, up to the last byte."""
    position, before = start, ""
    for tensor in sorted(tensors, key=lambda one: (one.begin, one.end)):
        if tensor.end > size:
            text = f"is truncated: tensor {tensor.name!r} ends at byte {tensor.end} and the file has {size}"
            _invalid(path, text)
        if tensor.begin < position:
            _invalid(path, f"tensors {before!r} and {tensor.name!r} overlap")
        if tensor.begin > position:
            _invalid(path, f"has {tensor.begin - position} bytes before tensor {tensor.name!r} that belong to none")
        position, before = tensor.end, tensor.name
    if position != size:
        _invalid(path, f"has {size - position} bytes after its last tensor that belong to none")


def _invalid(path: Path, message: str) -> NoReturn:
    raise ModelError(INVALID, path, message)
