"""JSON of a model's folder, parsed within bounds of memory. No torch.

Parsed, JSON may take twenty times its size: `[],` is three bytes, and a list of 64. So values are counted before any is
made; what is counted inside of strings too only makes the count larger.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from octavo.worker.errors import INVALID, NOT_FOUND, ModelError, unreadable
from octavo.worker.models.config.json_fields import Json

_SIGNS = (b",", b":", b"[", b"{")  # there is one of them for each value


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """Of a file, or of a header: bytes and values."""

    size: int
    values: int


SETTINGS = SizeLimit(16 << 20, 750_000)  # an index of 90,000 tensors has 9 MiB and 180,000 values; parsed: below 64 MiB
TOKENIZER = SizeLimit(128 << 20, 8_000_000)  # several times the largest there are


def read_json(path: Path, required: bool, bound: SizeLimit = SETTINGS) -> Json:
    """The JSON object in `path`; {} when it is absent and not required."""
    try:
        if (size := path.stat().st_size) > bound.size:
            raise ModelError(INVALID, path, f"is {size} bytes long, over the limit of {bound.size}")
        content = path.read_bytes()
    except FileNotFoundError:
        if not required:
            return {}
        raise ModelError(NOT_FOUND, path, "no such file; a model is a Hugging Face folder with config.json") from None
    except OSError as error:
        raise unreadable(path, error) from error
    check_values(path, content, bound.values)
    try:
        # Strict: the router's parser refuses what Python's would let pass.
        parsed = json.loads(content.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # bad JSON or bad UTF-8
        raise ModelError(INVALID, path, f"is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ModelError(INVALID, path, f"holds a {type(parsed).__name__}, not a JSON object")
    return parsed


def parse_header(path: Path, encoded: bytes, pairs: Callable[[list[tuple[str, Any]]], Json]) -> Any:  # Any: JSON
    """What stands before the tensors of a file. pairs: makes its objects."""
    check_values(path, encoded, SETTINGS.values)
    try:
        return json.loads(encoded, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise ModelError(INVALID, path, f"its header is not JSON: {error}") from error


def check_values(path: Path, encoded: bytes, most: int) -> None:
    """Raises ModelError for more than `most` values."""
    if sum(map(encoded.count, _SIGNS)) > most:
        raise ModelError(INVALID, path, f"holds more JSON values than the limit of {most}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
