"""A GPU that cannot be used is missed at once, with what is missing: PyTorch for it, the driver, or the card."""

import ctypes
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from octavo.worker import main
from octavo.worker.devices import gpu
from octavo.worker.errors import ConfigError


class Driver:
    """libcuda with these answers."""

    def __init__(self, init: int, devices: int, capability: tuple[int, int] = (9, 0)) -> None:
        self._init, self._devices, self._capability = init, devices, capability

    def cuInit(self, flags: int) -> int:
        return self._init

    def cuDeviceGetCount(self, count: object) -> int:
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self._devices  # type: ignore[call-overload]
        return 0

    def cuDeviceGetAttribute(self, value: object, attribute: int, device: int) -> int:
        found = self._capability[attribute - 75]
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = found  # type: ignore[call-overload]
        return 0


def use(monkeypatch: pytest.MonkeyPatch, driver: object) -> None:
    monkeypatch.setattr(gpu, "_driver", lambda: driver)
    monkeypatch.setattr(gpu, "_no_torch", lambda: "")


def test_with_a_driver_and_a_card_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Driver(init=0, devices=2))
    assert gpu.missing() == "" and gpu.likely()
    gpu.check("cuda")


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        (OSError("libcuda.so.1: no such file"), "there is no NVIDIA driver (libcuda.so.1: no such file)"),
        (Driver(init=100, devices=0), "the NVIDIA driver finds none"),
        (Driver(init=0, devices=0), "does CUDA_VISIBLE_DEVICES hide it?"),
        (Driver(init=803, devices=0), "the NVIDIA driver answers with error 803"),
    ],
)
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, driver: object, said: str) -> None:
    use(monkeypatch, driver)
    with pytest.raises(ConfigError) as caught:
        gpu.check("cuda")
    assert said in str(caught.value) and str(caught.value).startswith("--device cuda: PyTorch sees no GPU: ")
    gpu.check("auto")
    gpu.check("cpu")


def test_a_gpu_that_the_kernels_are_not_for_is_named_by_its_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Driver(init=0, devices=1, capability=(8, 6)))
    with pytest.raises(ConfigError, match=r"the GPU has compute capability 8\.6; the kernels are for 9\.0"):
        gpu.check("cuda")


def test_a_pytorch_for_cpus_is_no_help(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    monkeypatch.setattr(gpu, "find_spec", lambda name: ModuleSpec(name, None, origin=str(tmp_path / "__init__.py")))
    monkeypatch.setattr(gpu, "_driver", lambda: Driver(init=0, devices=1))
    assert gpu.missing() == "PyTorch sees no GPU: this PyTorch is built for CPUs only" and not gpu.likely()


def test_fewer_gpus_than_ranks_are_refused_by_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Driver(init=0, devices=2))
    for device in ("cuda", "auto"):
        gpu.check(device, 2)
        with pytest.raises(ConfigError, match=r"--tensor, --pipeline: 4 ranks here take a GPU each, and .* finds 2 "):
            gpu.check(device, 4)
    use(monkeypatch, Driver(init=100, devices=0))
    gpu.check("auto", 4)  # on CPUs then


@pytest.mark.parametrize(
    ("seen", "index", "taken"), [(None, 3, "3"), ("5", 0, "5"), ("7, GPU-1ab,2", 1, "GPU-1ab"), ("0,1", 1, "1")]
)
def test_a_rank_sees_one_of_the_gpus_that_its_pod_sees(
    monkeypatch: pytest.MonkeyPatch, seen: str | None, index: int, taken: str
) -> None:
    monkeypatch.setenv(gpu.VISIBLE, seen or "")
    if seen is None:
        monkeypatch.delenv(gpu.VISIBLE)
    gpu.take(index)
    assert os.environ[gpu.VISIBLE] == taken


def test_a_rank_without_a_gpu_of_its_own_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu.VISIBLE, "4,5")
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES=4,5: rank 2 of the pod has no GPU there"):
        gpu.take(2)


def test_a_worker_without_its_gpu_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Driver(init=100, devices=0))
    sockets = [f"--{name}=unix:/{name}" for name in ("serve", "group", "status", "health", "metrics")]
    assert main.main(["--model", "m", "--device", "cuda", *sockets]) == 2
    assert "octavo worker: --device cuda: " in capsys.readouterr().err
