"""The file of a run: vLLM's name for it, and how it is written."""

import json
from datetime import datetime
from pathlib import Path

from octavo.bench.arithmetic.report import Json, Load
from octavo.bench.serve_options import Saving
from octavo.errors import UsageError


def prepare(saving: Saving) -> None:
    """Makes the folder before the run, so that none is measured in vain. Raises UsageError."""
    if saving.folder is None:
        return
    try:
        saving.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--result-dir {saving.folder}: {error.strerror}") from error


def path(saving: Saving, label: str, load: Load, model: str, now: datetime) -> Path:
    """LABEL-RATEqps[-concurrencyN]-MODEL-DATE.json unless it has a name."""
    bound = "" if load.max_concurrency is None else f"-concurrency{load.max_concurrency}"
    name = f"{label}-{load.request_rate}qps{bound}-{model.rsplit('/', 1)[-1]}-{now:%Y%m%d-%H%M%S}.json"
    return (saving.folder or Path()) / (saving.filename or name)


def write(file: Path, result: Json, *, append: bool = False) -> None:
    """append: as a further line. Raises OSError."""
    with file.open("a" if append else "w", encoding="utf-8") as out:
        if append and out.tell():
            out.write("\n")
        json.dump(result, out)
