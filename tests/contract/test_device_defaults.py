"""What the resource says of a device's defaults is what a worker has: neither may import the other."""

import pytest

from octavo.operator.api.accelerators import DEVICES, GPU
from octavo.worker.runner.cpu import runner as cpu
from octavo.worker.runner.cuda import runner as cuda


@pytest.mark.parametrize(
    ("device", "worker"),
    [
        ("cpu", (cpu._REQUESTS, cpu._BATCH_TOKENS, cpu._BATCH_TOKENS)),
        (GPU, (cuda._REQUESTS, cuda._BATCH_TOKENS, cuda._LEAST_TOKENS)),
    ],
)
def test_the_operator_knows_the_workers_defaults(device: str, worker: tuple[int, int, int]) -> None:
    told = DEVICES[device]
    assert (told.max_requests, told.max_batch_tokens, told.least_batch_tokens) == worker
