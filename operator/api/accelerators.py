"""What workers can compute on, and what follows from it: the worker's flag, and the defaults of its fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Device:
    """device: the worker's --device. max_requests, max_batch_tokens: the worker's own defaults on it; the tokens are
    divided by the stages of a pipeline, down to least_batch_tokens.

    dtypes: that it computes in. resources: of a worker container unless the spec says otherwise. On a GPU the weights
    pass through host memory without staying there, so that the memory there is not that of the model.
    """

    device: str
    max_requests: int
    max_batch_tokens: int
    least_batch_tokens: int
    dtypes: tuple[str, ...]
    resources: Mapping[str, Mapping[str, str]]

    def batch_tokens(self, stages: int) -> int:
        """Most tokens of a step where the spec does not say."""
        return max(self.max_batch_tokens // stages, self.least_batch_tokens)


DEVICES: Mapping[str, Device] = {
    "cpu": Device(
        "cpu", 64, 512, 512, ("auto", "float32"),
        {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}},
    ),
    GPU: Device(
        "cuda", 256, 8192, 2048, ("auto", "float32", "bfloat16", "float16"),
        {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "16Gi"}},
    ),
}  # fmt: skip


def device(spec: Mapping[str, Any]) -> Device:  # Any: JSON
    """Of a spec that is complete."""
    return DEVICES[spec["accelerator"]["resource"]]
