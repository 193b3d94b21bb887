"""Whether there is a GPU to compute on, without the seconds that importing PyTorch takes: asked of its files and of
the driver."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

from octavo.worker.config import ConfigError

_DRIVER = "libcuda.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
_CAPABILITY = (9, 0)  # what csrc is compiled for: kernels/build.py


def check(device: str) -> None:
    """Raises ConfigError when `device` is cuda and there is no GPU for it."""
    if device == "cuda" and (why := missing()):
        raise ConfigError(f"--device cuda: {why}; give --device cpu, or mend that")


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
