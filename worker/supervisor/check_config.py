"""Whether a model can be served with the pod's settings, by what is known without torch and without the device.

What only the device can say (how much memory is left on a GPU) its rank finds out, and reports with the same reason.
"""

from octavo.shared.hashing import BLOCK_SIZE
from octavo.worker.config import Config
from octavo.worker.devices import gpu
from octavo.worker.devices.kv import KvShape, plan_kv
from octavo.worker.devices.memory import kv_cache_bytes
from octavo.worker.errors import ConfigError
from octavo.worker.models.folder.checkpoint import Checkpoint
from octavo.worker.models.sharding.shard import Shard

_SINGLE, _HALF = 4, 2  # bytes a number


def check_fit(config: Config, checkpoint: Checkpoint) -> None:
    """Raises ConfigError naming the field, and what to give instead."""
    model, layout = checkpoint.config, config.layout
    Shard(size=layout.tensor, stages=layout.pipeline).check(model)
    context = config.context_length or checkpoint.context_length
    if context > checkpoint.context_length:
        raise ConfigError(
            f"contextLength (--context-length): {context} is beyond the model's {checkpoint.context_length}; "
            f"give at most that, or leave it out"
        )
    on_cpu = config.device == "cpu" or (config.device == "auto" and not gpu.likely())
    if on_cpu or config.kv_cache_bytes is not None:  # what a GPU has left is not known here
        single = on_cpu or config.dtype == "float32"
        shape = KvShape.of(model, layout, BLOCK_SIZE, _SINGLE if single else _HALF)
        plan_kv(shape, kv_cache_bytes(config.kv_cache_bytes, ranks=layout.per_pod), context, max_requests=1)
