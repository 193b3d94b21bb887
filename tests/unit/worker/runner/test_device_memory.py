"""A wake has all that steps need, or nothing: decided on a device that only counts."""

from types import SimpleNamespace

import pytest
import torch

from octavo.kernels.errors import KernelError
from octavo.worker.errors import CannotWake
from octavo.worker.runner.cuda import device_memory
from octavo.worker.runner.cuda.device_memory import DeviceMemory

TOTAL, WORKING = 1000 << 20, 100 << 20
SIZES = {"weights": 300 << 20, "kv": 400 << 20}


class Device:
    """free: bytes. cached: by PyTorch's allocator."""

    def __init__(self) -> None:
        self.free, self.cached = TOTAL, 0

    def take(self, count: int) -> None:
        if count > self.free:
            raise KernelError("out of memory")
        self.free -= count

    def allocate(self, count: int, dtype: torch.dtype, device: torch.device) -> None:
        """As `torch.empty` of bytes whose tensor is gone at once: the allocator keeps them."""
        if (more := max(0, count - self.cached)) > self.free:
            raise torch.OutOfMemoryError("no memory")
        self.free, self.cached = self.free - more, self.cached + more

    def empty_cache(self) -> None:
        self.free, self.cached = self.free + self.cached, 0


class Region:
    def __init__(self, device: Device) -> None:
        self._device, self.bytes, self.backed = device, 0, 0

    def allocate(self, size: int) -> int:
        self._device.take(size)
        self.bytes += size
        self.backed += size
        return 0

    def hold(self) -> None: ...

    def release(self) -> None:
        self._device.free += self.backed
        self.backed = 0

    def back(self) -> None:
        self._device.take(self.bytes - self.backed)
        self.backed = self.bytes

    def fill(self, stream: object) -> None: ...


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    cuda = SimpleNamespace(
        get_device_properties=lambda _: SimpleNamespace(total_memory=TOTAL),
        Stream=lambda _: SimpleNamespace(synchronize=lambda: None),
        mem_get_info=lambda _: (device.free, TOTAL),
        empty_cache=device.empty_cache,
        synchronize=lambda _: None,
    )
    fake = SimpleNamespace(
        cuda=cuda, Size=torch.Size, uint8=torch.uint8, empty=device.allocate, OutOfMemoryError=torch.OutOfMemoryError
    )
    monkeypatch.setattr(device_memory, "torch", fake)
    monkeypatch.setattr(device_memory, "Region", lambda *_: Region(device))
    monkeypatch.setattr(device_memory, "memory_at", lambda *_: SimpleNamespace(zero_=lambda: None))
    return device


@pytest.fixture
def memory(device: Device) -> DeviceMemory:
    memory = DeviceMemory(torch.device("cpu"))
    memory.weight((SIZES["weights"],), dtype=torch.uint8, device=torch.device("cpu"))
    memory.pools(1, (SIZES["kv"],), torch.uint8)
    memory.working_bytes = WORKING
    device.allocate(WORKING, torch.uint8, torch.device("cpu"))  # the measured step
    return memory


@pytest.mark.parametrize("keep_kv", [False, True])
def test_a_rank_that_wakes_has_its_working_memory_too(device: Device, memory: DeviceMemory, keep_kv: bool) -> None:
    awake = device.free
    freed = memory.sleep(keep_kv)
    assert freed == sum(SIZES.values()) + WORKING - (SIZES["kv"] if keep_kv else 0)
    assert memory.wake() == freed and (device.free, device.cached) == (awake, WORKING)


def test_without_its_working_memory_a_rank_stays_asleep_and_takes_nothing(device: Device, memory: DeviceMemory) -> None:
    memory.sleep(keep_kv=False)
    others = device.free - sum(SIZES.values()) - WORKING + 1
    device.take(others)
    left = device.free
    with pytest.raises(CannotWake, match=r"working memory: out of memory: of the device's 1.0 GiB 0.8 are free"):
        memory.wake()
    assert (device.free, device.cached) == (left, 0)
    device.free += others
    assert memory.wake() == sum(SIZES.values()) + WORKING


def test_weights_are_copied_to_the_host_once(memory: DeviceMemory) -> None:
    assert memory.copy_bytes == SIZES["weights"]
    memory.prepare()
    assert memory.copy_bytes == 0
    memory.sleep(keep_kv=False)
    memory.wake()
    assert memory.copy_bytes == 0
