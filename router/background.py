"""Tasks that nobody waits for: one that dies says so, instead of being missed for ever."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def background(work: Coroutine[object, object, T], name: str) -> "asyncio.Task[T]":
    """A task of this work. Whatever can go on after an error does so itself; this is for what nobody foresaw."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell)
    return task


def _tell(task: "asyncio.Task[T]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s ended by an error", task.get_name(), exc_info=error)
