"""Devices that workers compute on: the worker's flag and the defaults of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"
LARGE_GPU_GIB = 64


@dataclass(frozen=True, slots=True)
class Device:
    """Defaults of one device.

    device: the worker's --device. max_requests, max_batch_tokens: the worker's own defaults; few_requests: the first on
    a device of less than LARGE_GPU_GIB of memory; the tokens are divided by the stages of a pipeline, down to
    least_batch_tokens. dtypes: number formats that the device supports. resources: of a worker container without
    spec.resources. On a GPU the weights pass through host memory without staying there, so the default does not depend
    on the model's size.
    """

    device: str
    max_requests: int
    few_requests: int
    max_batch_tokens: int
    least_batch_tokens: int
    dtypes: tuple[str, ...]
    resources: Mapping[str, Mapping[str, str]]

    def batch_tokens(self, stages: int) -> int:
        """Default of spec.engine.maxBatchTokens, in tokens."""
        return max(self.max_batch_tokens // stages, self.least_batch_tokens)


DEVICES: Mapping[str, Device] = {
    "cpu": Device(
        "cpu", 64, 64, 512, 512, ("auto", "float32"),
        {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}},
    ),
    GPU: Device(
        "cuda", 512, 256, 8192, 2048, ("auto", "float32", "bfloat16", "float16"),
        {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "16Gi"}},
    ),
}  # fmt: skip


def device(spec: Mapping[str, Any]) -> Device:  # Any: JSON
    """Device of a spec that has all its defaults."""
    return DEVICES[spec["accelerator"]["resource"]]
