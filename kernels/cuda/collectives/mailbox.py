"""Mailboxes between GPUs of neighbouring stages on one host: csrc/collectives/mailbox.cu. Nothing waits on the host."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch

from octavo.kernels.cuda.checks import VECTOR_BYTES, wants_int32
from octavo.kernels.cuda.library import INT, LONG, POINTER, function, library
from octavo.kernels.cuda.step_layout.prepare import DeviceState
from octavo.kernels.cuda.step_layout.steps import StepBuffers

NUMBER = ctypes.c_uint
_ID_BYTES = 16  # of a sampled id with its slot and place, and of what counts them


def ids_bytes(rows: int) -> int:
    """Of a message with the ids of so many rows."""
    return (1 + rows) * _ID_BYTES


class Boxes(NamedTuple):
    """Of the messages to a rank. size: bytes of one at most, a multiple of 16. room: so many may be there before one
    was taken; the sender's device waits with the next. A power of two: numbers of messages wrap."""

    size: int
    room: int


def region_bytes(boxes: Boxes) -> int:
    """Of the shared memory of a rank."""
    size = library("mailbox").octavo_mailbox_bytes
    size.argtypes, size.restype = [LONG, INT], LONG
    return int(size(*boxes))


@cache
def _pass(name: str) -> Callable[..., None]:
    return function("mailbox", name, POINTER, POINTER, POINTER, LONG, NUMBER, LONG, INT)


@cache
def _send_ids() -> Callable[..., None]:
    return function("mailbox", "octavo_mailbox_send_ids", *[POINTER] * 6, NUMBER, LONG, INT)


@cache
def _take_ids() -> Callable[..., None]:
    return function("mailbox", "octavo_mailbox_take_ids", *[POINTER] * 3, LONG, NUMBER, LONG, INT)


class Outbox:
    """Towards the next rank. Messages go in order."""

    def __init__(self, own: int, following: int, boxes: Boxes) -> None:
        """own, following: addresses of this rank's region and of the next one's, which has these boxes."""
        self._own, self._following, self._boxes = own, following, boxes
        self._number = 0

    def send(self, x: torch.Tensor) -> None:
        """x: contiguous, a multiple of 16 bytes."""
        _pass("octavo_mailbox_send")(
            self._own, self._following, x.data_ptr(), _size(x, self._boxes.size), self._next(), *self._boxes
        )

    def send_ids(self, step: StepBuffers, ids: torch.Tensor) -> None:
        """The sampled ids [S] of a step, as many of them as there are, with the slots and places that they are for."""
        wants_int32("ids", ids, step.sample_slots.numel())
        if ids_bytes(ids.numel()) > self._boxes.size:
            raise ValueError(f"ids: {ids.numel()} do not fit {self._boxes.size} bytes")
        _send_ids()(
            self._own, self._following, step.header.data_ptr(), step.sample_slots.data_ptr(),
            step.sample_ends.data_ptr(), ids.data_ptr(), self._next(), *self._boxes,
        )  # fmt: skip

    def _next(self) -> int:
        self._number += 1
        return self._number


class Inbox:
    """From the rank before."""

    def __init__(self, own: int, before: int, boxes: Boxes) -> None:
        """own, before: addresses of this rank's region, which has these boxes, and of that of the rank before."""
        self._own, self._before, self._boxes = own, before, boxes
        self._number = 0

    def receive(self, into: torch.Tensor) -> None:
        """The next message, of the size of `into`; the device waits for it."""
        _pass("octavo_mailbox_receive")(
            self._own, self._before, into.data_ptr(), _size(into, self._boxes.size), self._next(), *self._boxes
        )

    def take_ids(self, state: DeviceState) -> None:
        """The ids of the next message go into the token pool."""
        _take_ids()(self._own, self._before, state.tokens.data_ptr(), state.tokens.shape[1], self._next(), *self._boxes)

    def _next(self) -> int:
        self._number += 1
        return self._number


def _size(x: torch.Tensor, most: int) -> int:
    size = x.numel() * x.element_size()
    if not x.is_contiguous() or x.data_ptr() % VECTOR_BYTES or size % VECTOR_BYTES or size > most:
        raise ValueError(
            f"a message of {size} bytes at {x.data_ptr():#x}, strides {x.stride()}; wanted contiguous and aligned, a"
            f" multiple of {VECTOR_BYTES} bytes, at most {most}"
        )
    return size
