"""Whether there are GPUs to compute on, without the seconds that importing PyTorch takes: asked of its files and of the
driver. And which of them a rank takes: it sees that one alone, so that nothing it does can touch another's."""

import ctypes
import os
from importlib.util import find_spec
from pathlib import Path

from octavo.worker.errors import ConfigError

_DRIVER = "libcuda.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
_CAPABILITY = (9, 0)  # what csrc is compiled for: kernels/build.py


VISIBLE = "CUDA_VISIBLE_DEVICES"


def check(device: str, ranks: int = 1) -> None:
    """Raises ConfigError when `device` is cuda and there is no GPU, or, as for auto where there is one, fewer than the
    `ranks` that take one each."""
    if device == "cpu" or (device == "auto" and ranks == 1):
        return
    if why := missing():
        if device == "cuda":
            raise ConfigError(f"--device cuda: {why}; give --device cpu, or mend that")
    elif (found := count()) < ranks:
        raise ConfigError(
            f"--tensor, --pipeline: {ranks} ranks here take a GPU each, and the driver finds {found} (does {VISIBLE}"
            " hide some?); give fewer, or --device cpu"
        )


def take(index: int) -> None:
    """This process shall see only the GPU of this index among the ones it sees now. Before it has asked for any."""
    seen = os.environ.get(VISIBLE)
    names = None if seen is None else [name.strip() for name in seen.split(",")]
    if names is not None and index >= len(names):
        raise ConfigError(f"{VISIBLE}={seen}: rank {index} of the pod has no GPU there; name one for each rank")
    os.environ[VISIBLE] = str(index) if names is None else names[index]


def count() -> int:
    """How many the driver finds."""
    driver, found = _driver(), ctypes.c_int()
    if isinstance(driver, OSError) or driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(found)):
        return 0
    return found.value


def likely() -> bool:
    """A driver is installed; whether it finds a GPU takes it some tenths of a second to say."""
    return not _no_torch() and not isinstance(_driver(), OSError)


def missing() -> str:
    """Why there is none; empty when there is one."""
    unseen = "PyTorch sees no GPU: "
    if why := _no_torch():
        return unseen + why
    driver = _driver()
    if isinstance(driver, OSError):
        return f"{unseen}there is no NVIDIA driver ({driver})"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code and code != _NO_DEVICE:
        return f"{unseen}the NVIDIA driver answers with error {code}"
    if not count.value:
        return f"{unseen}the NVIDIA driver finds none (does CUDA_VISIBLE_DEVICES hide it?)"
    return _too_other(driver)


def _too_other(driver: ctypes.CDLL) -> str:
    """Of the first GPU, which is the one that a rank takes."""
    capability = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        capability.append(value.value)
    if tuple(capability) == _CAPABILITY:
        return ""
    found, wanted = (".".join(map(str, numbers)) for numbers in (capability, _CAPABILITY))
    return f"the GPU has compute capability {found}; the kernels are for {wanted} (Hopper: H100, H200)"


def _no_torch() -> str:
    found = find_spec("torch")
    if found is None or found.origin is None:
        return "PyTorch is not installed"
    if not (Path(found.origin).parent / "lib" / "libtorch_cuda.so").exists():
        return "this PyTorch is built for CPUs only"
    return ""


def _driver() -> ctypes.CDLL | OSError:
    try:
        return ctypes.CDLL(_DRIVER)
    except OSError as error:
        return error
