"""The choice of a device, and the one runner that is imported for it."""

import logging

from octavo.worker.devices import gpu
from octavo.worker.distributed.collective import ALONE, Gathering
from octavo.worker.distributed.links import Links
from octavo.worker.runner.base import DeviceRunner, Progress, RunnerConfig, quiet

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # whatever the others say: it is what everybody asks first


def open_runner(
    config: RunnerConfig, progress: Progress = quiet, collective: Gathering = ALONE, links: Links | None = None
) -> DeviceRunner:
    """Load the model on the device. collective: of the rank's stage; links: None in a group of one stage.

    Raises ModelError, ConfigError naming the setting, or Fault; MissingKernels if this installation lacks them.
    """
    layout = config.position.layout
    if config.device != "cpu" and layout.ranks > 1:
        gpu.take(config.position.rank % layout.per_pod)
    gpu.check(config.device)
    if config.device == "cuda" or (config.device == "auto" and not gpu.missing()):
        from octavo.kernels.cuda.library import check_built
        from octavo.worker.runner.cuda.runner import CudaRunner

        check_built()  # before the device is touched and the weights are read
        runner: DeviceRunner = CudaRunner(config, progress, collective, links)
    else:
        from octavo.worker.runner.cpu.runner import Runner

        runner = Runner(config, progress, collective, links)
    logger.info("device: %s", runner.device_name)
    return runner
