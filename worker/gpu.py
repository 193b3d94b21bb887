"""Whether PyTorch will see a GPU, without the seconds that importing it takes: asked of its files and of the driver."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

from octavo.worker.config import ConfigError

_DRIVER = "libcuda.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def check(device: str) -> None:
    """Raises ConfigError when `device` is cuda and there is no GPU for it."""
    if device == "cuda" and (why := missing()):
        raise ConfigError(f"--device cuda: PyTorch sees no GPU: {why}; give --device cpu, or mend that")


def likely() -> bool:
    """A driver is installed; whether it finds a GPU takes it some tenths of a second to say."""
    return not _no_torch() and not isinstance(_driver(), OSError)


def missing() -> str:
    """Why there is none; empty when there is one."""
    if why := _no_torch():
        return why
    driver = _driver()
    if isinstance(driver, OSError):
        return f"there is no NVIDIA driver ({driver})"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code and code != _NO_DEVICE:
        return f"the NVIDIA driver answers with error {code}"
    return "" if count.value else "the NVIDIA driver finds none (does CUDA_VISIBLE_DEVICES hide it?)"


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
