"""What the resource says of a device's defaults is what a worker has: neither may import the other."""

import pytest

from octavo.operator.api.accelerators import DEVICES, GPU, LARGE_GPU_GIB
from octavo.worker.runner.cpu import runner as cpu
from octavo.worker.runner.cuda import memory
from octavo.worker.runner.cuda import runner as cuda


@pytest.mark.parametrize(
    ("device", "worker"),
    [
        ("cpu", (cpu._REQUESTS, cpu._REQUESTS, cpu._BATCH_TOKENS, cpu._BATCH_TOKENS)),
        (GPU, (memory.REQUESTS, memory.FEW_REQUESTS, cuda._BATCH_TOKENS, cuda._LEAST_TOKENS)),
    ],
)
def test_the_operator_knows_the_workers_defaults(device: str, worker: tuple[int, int, int, int]) -> None:
    defaults = DEVICES[device]
    assert (
        defaults.max_requests,
        defaults.few_requests,
        defaults.max_batch_tokens,
        defaults.least_batch_tokens,
    ) == worker


def test_a_large_gpu_runs_more_requests_at_once() -> None:
    assert memory.requests_of(LARGE_GPU_GIB << 30) == DEVICES[GPU].max_requests
    assert memory.requests_of((LARGE_GPU_GIB << 30) - 1) == DEVICES[GPU].few_requests
