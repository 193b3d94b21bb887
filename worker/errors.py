"""Errors of the worker. One that ends a process reaches the status with its reason; without a reason, as ServeFailed,
CoreFailed or RankFailed.

    WorkerError
    ├── ModelError       ModelNotFound, ModelInvalid or ModelUnreadable: the model cannot be served
    ├── ConfigError      ConfigInvalid: a setting is wrong, by itself or for this model or device
    ├── Fault            any reason: a process cannot go on
    ├── KernelsMissing   KernelsMissing: the kernels were not built for this installation
    ├── PeerLost         PeerLost: another rank of the stage is gone
    ├── LeaderLost       the stream to the leader broke
    │   └── JoinRefused  the leader does not accept this pod
    ├── PeerRefused      a stage does not accept a message of its neighbour
    ├── InvalidStep      a step that no rank may compute
    ├── CodecError       bytes that are no message of this version
    ├── RingBroken       the shared memory holds a record that no writer can have written
    ├── GrammarInvalid   one request: its grammar cannot be compiled
    ├── Invalid          one request: it can never run
    ├── FieldInvalid     a field of config.json cannot be served; becomes a ModelError
    ├── CannotSleep      a rank cannot give its memory back; it goes on
    ├── CannotWake       a rank cannot have its memory again; it stays asleep
    └── Unshared         GPUs do not reach each other's memory; sums then take another path
"""

import os
from pathlib import Path

from octavo.shared.failure_reasons import FailureReason

NOT_FOUND = FailureReason.MODEL_NOT_FOUND
INVALID = FailureReason.MODEL_INVALID
UNREADABLE = FailureReason.MODEL_UNREADABLE
MAX_CHARACTERS = 600  # of a message: it may quote what stands in a file


class WorkerError(Exception):
    """Root of the worker's errors. reason: of the failure, where the error ends a process; None: it has none."""

    reason: FailureReason | None = None


class ModelError(WorkerError):
    """reason: ModelNotFound, ModelInvalid or ModelUnreadable; file: what was read; message: the cause, what to do."""

    reason: FailureReason

    def __init__(self, reason: FailureReason, file: Path | str, message: str) -> None:
        self.reason = reason
        self.file = _sendable(str(file))
        self.message = _sendable(message)
        super().__init__(f"{self.file}: {self.message}")


class ConfigError(WorkerError, ValueError):
    """A value is wrong, by itself or for this model. The message names the flag or field and what to give instead."""

    reason: FailureReason = FailureReason.CONFIG_INVALID


class Fault(WorkerError):
    """A child cannot go on, and the cause has a name that users see in the status."""

    reason: FailureReason

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class KernelsMissing(WorkerError):
    """The kernels of this device were not built for this installation."""

    reason = FailureReason.KERNELS_MISSING


class CannotSleep(WorkerError):
    """A rank cannot give its memory back: nothing has changed. The message says why, and what to do."""


class CannotWake(WorkerError):
    """A rank cannot have its memory again: it stays asleep. The message says why, and what to do."""


class PeerLost(WorkerError):
    """Another rank of the stage is gone; its own supervisor reports the cause."""

    reason = FailureReason.PEER_LOST


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
