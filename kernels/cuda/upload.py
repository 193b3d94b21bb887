"""Weights from mapped files to the device, by threads of csrc/upload.cu: reading and the bus's copy overlap."""

import ctypes
import os
from functools import cache

import torch

from octavo.kernels.cuda.library import INT, LONG, POINTER, library
from octavo.kernels.errors import KernelError

_MOST_THREADS = 8  # which keep up with a bus of 54 GB/s, each copying 6 to 7
BYTES = 4 << 20  # of each buffer: larger ones leave the processors' cache, smaller ones are not worth their calls
_CONVERTED_BYTES = 64 << 20  # at once, where dtypes differ


@cache
def _library() -> ctypes.CDLL:
    loaded = library("upload")
    loaded.octavo_upload_open.argtypes = [INT, INT, LONG]
    loaded.octavo_upload_open.restype = POINTER
    loaded.octavo_upload_copy.argtypes = [POINTER, POINTER, POINTER, LONG, LONG, LONG]
    loaded.octavo_upload_wait.argtypes = loaded.octavo_upload_close.argtypes = [POINTER]
    loaded.octavo_upload_copy.restype = loaded.octavo_upload_wait.restype = INT
    loaded.octavo_upload_close.restype = None
    return loaded


def thread_count() -> int:
    """That read at once; a processor is left to what gives them work."""
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) - 1))


class Upload:
    """Copies are made in any order, and none is waited for before `finish`. `close` ends it."""

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._threads = _library().octavo_upload_open(index, thread_count(), BYTES)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """target, contiguous on the device, becomes source, of 1 or 2 dimensions and without gaps within a row.

        Both have to stay. Where dtypes differ, it is waited for.

        Raises ValueError for other shapes, KernelError with what an earlier copy has failed with, or where the host has
        no memory left to pin.
        """
        if target.shape != source.shape or not target.is_contiguous() or source.stride(-1) != 1:
            raise ValueError(f"a copy of size {list(source.shape)}, strides {source.stride()}, to {list(target.shape)}")
        rows = source.unsqueeze(0) if source.dim() == 1 else source
        if target.dtype == source.dtype:
            self._send(target, rows)
        else:
            self._convert(target.view(rows.shape), rows)

    def _send(self, target: torch.Tensor, rows: torch.Tensor) -> None:
        torch.cuda.current_stream().synchronize()  # what used target's memory before may be under way
        size, (count, width) = rows.element_size(), rows.shape
        pitch = rows.stride(0) if count > 1 else width
        code = _library().octavo_upload_copy(
            self._threads, target.data_ptr(), rows.data_ptr(), pitch * size, width * size, count
        )
        _check(code, "weights to the device")

    def _convert(self, target: torch.Tensor, rows: torch.Tensor) -> None:
        at_once = max(1, _CONVERTED_BYTES // max(1, rows.shape[1] * rows.element_size()))
        for into, part in zip(target.split(at_once), rows.split(at_once), strict=True):
            sent = torch.empty(part.shape, dtype=part.dtype, device=target.device)
            self._send(sent, part)
            self.finish()
            into.copy_(sent)

    def finish(self) -> None:
        """Wait until everything is there. Raises KernelError with what a copy has failed with."""
        _check(_library().octavo_upload_wait(self._threads), "weights to the device")

    def close(self) -> None:
        """End the threads and give the buffers back; what has not been copied by now may never be."""
        _library().octavo_upload_close(self._threads)


def _check(code: int, what: str) -> None:
    if code:
        raise KernelError(f"{what}: CUDA error {code}")
