"""The memory of a rank on its GPU that a sleep gives back: weights, of which the host then has a pinned copy, and KV.

    awake    weights, KV, graphs and working memory on the device
    asleep   weights on the host, KV nowhere, or kept on the device; the working memory of steps outside graphs is
             given back by PyTorch's allocator
    awake    weights and KV at the addresses that they had: graphs go on as they are; the allocator has again what the
             largest step needs, which no other process can take then

The copy on the host is made once and kept: weights do not change, so later sleeps copy nothing.
"""

from threading import Lock

import torch

from octavo.kernels.cuda.region import Region, aligned
from octavo.kernels.errors import KernelError
from octavo.worker.errors import CannotSleep, CannotWake
from octavo.worker.runner.cuda.buffers import memory_at

_KV_PART_BYTES = 1 << 30


class DeviceMemory:
    """working_bytes: of the largest step outside graphs; a rank that wakes has them again."""

    def __init__(self, device: torch.device) -> None:
        total = torch.cuda.get_device_properties(device).total_memory
        self._device = device
        self._weights = Region(device, total)  # addresses cost nothing
        self._kv: Region | None = None
        self._released: list[Region] = []
        self._holding = Lock()
        self._held = False
        self.working_bytes = 0
        self._streams = [torch.cuda.Stream(device) for _ in range(2)]

    def weight(self, shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for a parameter, as torch.empty gives it."""
        return _tensor(self._weights, shape, dtype, device)

    def pools(self, count: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
        """The layers' KV, all zeros."""
        total = count * aligned(torch.Size(shape).numel() * dtype.itemsize)
        parts = max(1, total // _KV_PART_BYTES)
        self._kv = Region(self._device, total, -(-total // parts))
        return [_tensor(self._kv, shape, dtype, self._device).zero_() for _ in range(count)]

    @property
    def copy_bytes(self) -> int:
        """As DeviceRunner.copy_bytes."""
        return 0 if self._held else self._weights.bytes

    def prepare(self) -> None:
        """Make the copy on the host, for which there is memory. Raises KernelError."""
        with self._holding:
            self._weights.hold()
            self._held = True

    def sleep(self, keep_kv: bool) -> int:
        """As DeviceRunner.sleep."""
        torch.cuda.synchronize(self._device)
        try:
            self.prepare()
        except KernelError as error:
            raise CannotSleep(
                f"{error}; the weights of a rank that sleeps stay in the host's memory: raise the memory limit"
            ) from error
        before = self._free()
        self._release(self._weights)
        if self._kv is not None and not keep_kv:
            self._release(self._kv)
        torch.cuda.empty_cache()
        return self._free() - before

    def wake(self) -> int:
        """As DeviceRunner.wake."""
        if not self._released:
            return 0
        before, released = self._free(), list(self._released)
        try:
            for region in released:
                region.back()
            self._reserve_working()
        except KernelError as error:
            for region in released:
                region.release()
            free, total = torch.cuda.mem_get_info(self._device)
            sizes = f"of the device's {total / (1 << 30):.1f} GiB {free / (1 << 30):.1f} are free"
            raise CannotWake(f"{error}: {sizes}; end what uses the rest") from error
        for region, stream in zip(released, self._streams, strict=False):
            region.fill(stream)
        for stream in self._streams:
            stream.synchronize()
        self._released.clear()
        return before - self._free()

    def _reserve_working(self) -> None:
        """Have PyTorch's allocator keep what a step takes from it. Raises KernelError."""
        try:
            torch.empty(self.working_bytes, dtype=torch.uint8, device=self._device)
        except torch.OutOfMemoryError as error:
            raise KernelError(f"{self.working_bytes} bytes of a step's working memory: out of memory") from error

    def _release(self, region: Region) -> None:
        if region not in self._released:
            region.release()
            self._released.append(region)

    def _free(self) -> int:
        return torch.cuda.mem_get_info(self._device)[0]


def _tensor(region: Region, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    stride = tuple(torch.Size(shape[place + 1 :]).numel() for place in range(len(shape)))
    address = region.allocate(torch.Size(shape).numel() * dtype.itemsize)
    return memory_at(address, shape, stride, dtype, device)
