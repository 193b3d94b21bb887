"""From mapped files to the device: through pinned buffers, so that reading and the copy over the bus overlap.

    file (page cache) --copy by threads--> pinned buffers --DMA--> device

One thread reads a mapped file at some 4 GB/s, where the bus takes 50: as many read as there are processors, up to some.
A buffer is filled again once its copy has left.
"""

import ctypes
import os
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import torch

_MOST_THREADS = 16
BYTES = 16 << 20  # of each buffer: what a part costs beside its copy does not shrink with it
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # which NumPy has, unlike bfloat16


def thread_count() -> int:
    """That read at once; a processor is left to what gives them work."""
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) - 1))


class Upload:
    """Copies are made in any order, and none is waited for before `finish`."""

    def __init__(self, device: torch.device) -> None:
        count = thread_count()
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="upload")
        self._buffers: SimpleQueue[torch.Tensor] = SimpleQueue()
        for _ in range(count):
            self._buffers.put(torch.empty(BYTES, dtype=torch.uint8, pin_memory=True))
        self._under_way: list[Future[None]] = []
        self._most = 2 * count  # parts; what is asked for beyond waits, so that progress tells the truth

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """target, on the device, becomes source, on the host; 1 or 2 dimensions, dtypes may differ. Both have to stay.

        Raises what an earlier copy has failed with.
        """
        rows = source.unsqueeze(0) if source.dim() == 1 else source
        into = target.unsqueeze(0) if target.dim() == 1 else target
        at_once = max(1, BYTES // (rows.shape[1] * rows.element_size()))
        for first in range(0, rows.shape[0], at_once):
            part = slice(first, first + at_once)
            self._divide(into[part], rows[part])

    def _divide(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if source.numel() * source.element_size() > BYTES:  # one row larger than a buffer
            half = source.shape[1] // 2
            self._divide(target[:, :half], source[:, :half])
            self._divide(target[:, half:], source[:, half:])
            return
        while len(self._under_way) >= self._most:
            self._under_way.pop(0).result()
        self._under_way.append(self._threads.submit(self._copy, target, source))

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        buffer = self._buffers.get()
        try:
            staged = buffer[: source.numel() * source.element_size()].view(source.dtype).view(source.shape)
            stage(staged, source)
            with torch.inference_mode(), torch.cuda.stream(self._stream):  # a thread has a mode and a stream of its own
                if target.is_contiguous() and target.dtype == source.dtype:
                    target.copy_(staged, non_blocking=True)
                else:
                    target.copy_(staged.to(self._device, non_blocking=True))
                left = self._stream.record_event()
            left.synchronize()
        finally:
            self._buffers.put(buffer)

    def finish(self) -> None:
        """Wait until everything is there. Raises what a copy has failed with."""
        try:
            for copy in self._under_way:
                copy.result()
            self._stream.synchronize()
        finally:
            self._threads.shutdown(cancel_futures=True)


def stage(staged: torch.Tensor, source: torch.Tensor) -> None:
    """staged, which is contiguous, becomes source, by this thread alone, and others run meanwhile."""
    if source.is_contiguous():
        ctypes.memmove(staged.data_ptr(), source.data_ptr(), source.numel() * source.element_size())
    else:
        integers = _INTEGERS[source.element_size()]
        np.copyto(staged.view(integers).numpy(), source.view(integers).numpy())
