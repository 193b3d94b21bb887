"""Background tasks: the error of one that ends is logged, since no code awaits it."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def background(work: Coroutine[object, object, T], name: str) -> "asyncio.Task[T]":
    """Start a task. Code that can go on after an error catches it itself; this logs unexpected errors."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_error)
    return task


def _log_error(task: "asyncio.Task[T]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s ended by an error", task.get_name(), exc_info=error)
