"""From mapped files to the device: through pinned buffers, so that reading and the copy over the bus overlap.

    file (page cache) --copy by several threads--> pinned buffer --DMA--> device

A buffer is filled again once its copy has left; with four of them the bus is never idle while the threads keep up.
"""

import torch

_BUFFERS = 4
_BYTES = 32 << 20  # of each: long enough for the bus, short enough that the first copy starts at once


class Upload:
    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._buffers = [torch.empty(_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(_BUFFERS)]
        self._free = [torch.cuda.Event() for _ in range(_BUFFERS)]
        self._next = 0

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """target, on the device, becomes source, on the host; 1 or 2 dimensions, dtypes may differ. Does not wait."""
        rows = source.unsqueeze(0) if source.dim() == 1 else source
        into = target.unsqueeze(0) if target.dim() == 1 else target
        at_once = max(1, _BYTES // (rows.shape[1] * rows.element_size()))
        for first in range(0, rows.shape[0], at_once):
            part = slice(first, first + at_once)
            self._copy(into[part], rows[part])

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        size = source.numel() * source.element_size()
        if size > _BYTES:  # one row larger than a buffer
            half = source.shape[1] // 2
            self._copy(target[:, :half], source[:, :half])
            self._copy(target[:, half:], source[:, half:])
            return
        buffer, free = self._buffers[self._next], self._free[self._next]
        self._next = (self._next + 1) % _BUFFERS
        free.synchronize()
        staged = buffer[:size].view(source.dtype).view(source.shape)
        staged.copy_(source)
        with torch.cuda.stream(self._stream):
            if target.is_contiguous() and target.dtype == source.dtype:
                target.copy_(staged, non_blocking=True)
            else:
                target.copy_(staged.to(target.device, non_blocking=True))
            free.record(self._stream)

    def finish(self) -> None:
        """Wait until everything is there."""
        self._stream.synchronize()
