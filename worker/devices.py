"""The choice of a device, and the one runner that is imported for it."""

import torch

from octavo.worker.config import ConfigError
from octavo.worker.device import DeviceRunner, Progress, RunnerConfig, quiet


def open_runner(config: RunnerConfig, progress: Progress = quiet) -> DeviceRunner:
    """Load the model on the device. Raises ModelError, or ConfigError naming the setting that cannot work."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device: cuda is asked for, but PyTorch sees no GPU; give cpu, or mend the driver")
    if config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available()):
        from octavo.worker.cuda.runner import CudaRunner

        return CudaRunner(config, progress)
    from octavo.worker.runner import Runner

    return Runner(config, progress)
