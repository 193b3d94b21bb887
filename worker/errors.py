"""Why a model cannot be served, in words that reach the resource's status."""

import os
from pathlib import Path

NOT_FOUND = "ModelNotFound"
INVALID = "ModelInvalid"
UNREADABLE = "ModelUnreadable"
MAX_CHARACTERS = 600  # of a message: it may quote what stands in a file


class ModelError(Exception):
    """reason: ModelNotFound, ModelInvalid or ModelUnreadable; file: what was read; message: the cause, what to do."""

    def __init__(self, reason: str, file: Path | str, message: str) -> None:
        self.reason = reason
        self.file = _sendable(str(file))
        self.message = _sendable(message)
        super().__init__(f"{self.file}: {self.message}")


def _sendable(text: str) -> str:
    """Of bounded length, the middle left out, and UTF-8 whatever a file's JSON has escaped."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[: MAX_CHARACTERS // 2]} ... {text[-MAX_CHARACTERS // 3 :]}"
    return text.encode("utf-8", "backslashreplace").decode()


def unreadable(file: Path | str, error: OSError) -> ModelError:
    """It is there, and the system does not give it. The error's own file name is the more exact one."""
    message = f"cannot be read: {error.strerror or error}"
    if isinstance(error, PermissionError):
        message = f"permission denied to user {os.geteuid()}, the worker's; allow it with `chmod -R a+rX`"
    return ModelError(UNREADABLE, error.filename or file, message)
