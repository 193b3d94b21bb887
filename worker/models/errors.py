"""Why a model cannot be served, in words that reach the resource's status."""

from pathlib import Path

NOT_FOUND = "ModelNotFound"
INVALID = "ModelInvalid"


class ModelError(Exception):
    """reason: ModelNotFound or ModelInvalid; file: what was read; message: the cause and what to do."""

    def __init__(self, reason: str, file: Path | str, message: str) -> None:
        super().__init__(f"{file}: {message}")
        self.reason = reason
        self.file = str(file)
        self.message = message
