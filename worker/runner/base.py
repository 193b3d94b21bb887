"""What a rank needs of its device, whichever it is: a runner that is given steps in order, and their results later."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from octavo.proto.v1 import group_pb2
from octavo.worker.errors import ConfigError
from octavo.worker.messages.step import MaskSource, Step, StepResult, no_masks
from octavo.worker.models.weights_digest import WeightsDigest
from octavo.worker.topology import RankPosition

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Progress(Protocol):
    def __call__(self, phase: str, percent: int) -> None: ...


def quiet(phase: str, percent: int) -> None:
    """Progress that is not shown."""


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """device: auto is a GPU where there is one. dtype: auto is float32 on a CPU, the checkpoint's on a GPU. place:
    of the rank in its group, which decides what it loads.

    What may be None: the context is the model's; the rest is by device and limits. backend: of the CPU's kernels.
    """

    model_dir: Path
    device: str = "auto"
    dtype: str = "auto"
    context_length: int | None = None
    max_requests: int | None = None
    max_batch_tokens: int | None = None
    kv_cache_bytes: int | None = None
    block_size: int = 16
    threads: int | None = None
    backend: str = "cpu"
    position: RankPosition = field(default_factory=RankPosition)

    def sizes(self, max_requests: int, max_batch_tokens: int) -> tuple[int, int]:
        """Requests, and tokens of a step; the arguments are the device's defaults. A request that decodes takes a token
        of every step of its micro-batch: raises ConfigError when more are configured than there are tokens."""
        stages, tokens = self.position.layout.pipeline, self.max_batch_tokens or max_batch_tokens
        requests = self.max_requests or min(max_requests, stages * tokens)
        if requests > stages * tokens:
            raise ConfigError(
                f"maxRequests (--max-requests): {requests} is more than parallelism.pipeline {stages} x maxBatchTokens "
                f"(--max-batch-tokens) {tokens}; lower it, or raise maxBatchTokens"
            )
        return requests, tokens

    def context(self, model_context: int) -> int:
        """The configured context. Raises ConfigError when it is beyond the model's."""
        context = model_context if self.context_length is None else self.context_length
        if context > model_context:
            raise ConfigError(f"contextLength (--context-length): {context} is beyond the model's {model_context}")
        return context


class Pending(Protocol):
    """A step on its way through the device."""

    def result(self) -> StepResult:
        """Waits for it. Results are asked for in the order of the steps."""


class DeviceRunner(Protocol):
    """A loaded model. blocks: of KV. graphs: names of what it can capture, in the order that is best.
    device: cpu or cuda. device_name: for people, with the format of its numbers. features: as in RankCapabilities.
    digest: of the weights that it has loaded.
    path: how the ranks of its stage add up: local (it is alone), gloo, peers (GPUs that reach each other's memory) or
    nccl. collective, activations: how it reaches the others of its stage, and the stages beside it."""

    device: str
    device_name: str
    blocks: int
    context_length: int
    vocabulary: int
    max_requests: int
    max_batch_tokens: int
    graphs: list[str]
    features: list[str]
    digest: WeightsDigest
    path: str
    collective: "group_pb2.Transport.ValueType"
    activations: "group_pb2.Transport.ValueType"

    def issue(self, step: Step, masks: MaskSource = no_masks) -> Pending:
        """Run the step after all earlier ones. A step without rows that names a graph captures it. masks: asked,
        after the forward pass has begun, for a step with bound rows.

        Only the last stage's ranks return ids; the others' results say that they have done their part.
        """

    @property
    def copy_bytes(self) -> int:
        """Of the host's memory that the first `sleep`, or `prepare_sleep`, has yet to take."""

    def prepare_sleep(self) -> None:
        """Make what the first `sleep` needs beyond later ones, where the host has room for it; may be called by another
        thread, while steps run. Raises KernelError: that `sleep` tries again."""

    def sleep(self, keep_kv: bool) -> int:
        """Give the device's memory back: bytes of it. Every step has returned; none with rows comes before `wake`.
        keep_kv: but the KV cache. Raises CannotSleep, with everything as before."""

    def wake(self) -> int:
        """Have it again: bytes of it. The KV cache is all zeros unless it was kept. Raises CannotWake, with everything
        as before, and ModelError when the model is not the one that fell asleep."""
