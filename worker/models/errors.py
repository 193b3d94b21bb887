"""Why a model cannot be served, in words that reach the resource's status."""

import os
from pathlib import Path

NOT_FOUND = "ModelNotFound"
INVALID = "ModelInvalid"
UNREADABLE = "ModelUnreadable"


class ModelError(Exception):
    """reason: ModelNotFound, ModelInvalid or ModelUnreadable; file: what was read; message: the cause, what to do."""

    def __init__(self, reason: str, file: Path | str, message: str) -> None:
        super().__init__(f"{file}: {message}")
        self.reason = reason
        self.file = str(file)
        self.message = message


def unreadable(file: Path | str, error: OSError) -> ModelError:
    """It is there, and the system does not give it. The error's own file name is the more exact one."""
    message = f"cannot be read: {error.strerror or error}"
    if isinstance(error, PermissionError):
        message = f"permission denied to user {os.geteuid()}, as whom the worker runs; allow it with `chmod -R a+rX`"
    return ModelError(UNREADABLE, error.filename or file, message)
