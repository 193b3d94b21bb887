"""What is copied to the device through several buffers at once is there, whole and in its place, at the end."""

import os
from contextlib import closing

import pytest
import torch

from octavo.kernels.cuda import upload
from octavo.kernels.cuda.upload import Upload
from octavo.kernels.errors import KernelError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

DEVICE = torch.device("cuda")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that everything is divided."""
    monkeypatch.setattr(upload, "BYTES", 4096)
    monkeypatch.setattr(upload, "_CONVERTED_BYTES", 4096)


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("stored", DTYPES)
def test_all_shapes_of_sources_arrive(stored: torch.dtype, to: torch.dtype) -> None:
    whole = torch.randn(333, 1000, generator=torch.Generator().manual_seed(1)).to(stored)
    wide = torch.randn(3, 9001, generator=torch.Generator().manual_seed(2)).to(stored)
    sources = [whole, whole[17:101], whole[:, 250:500], whole[5], wide, wide[:, 1:8000], whole[:1, :1], whole[:0]]
    targets = [torch.full(source.shape, 7.0, dtype=to, device=DEVICE) for source in sources]
    with torch.inference_mode(), closing(Upload(DEVICE)) as making:
        for target, source in zip(targets, sources, strict=True):
            making.copy(target, source)
        making.finish()
    for target, source in zip(targets, sources, strict=True):
        assert torch.equal(target.cpu(), source.to(to))


def test_parts_of_one_target_do_not_touch_each_other() -> None:
    target = torch.zeros(60, 500, device=DEVICE)
    parts = [torch.full((20, 500), float(index)) for index in range(3)]
    with closing(Upload(DEVICE)) as making:
        for index, part in enumerate(parts):
            making.copy(target[20 * index : 20 * index + 20], part)
        making.finish()
    assert torch.equal(target.cpu(), torch.cat(parts))


def test_an_upload_that_is_closed_early_ends_its_threads() -> None:
    before = len(os.listdir("/proc/self/task"))
    with closing(Upload(DEVICE)) as making:
        making.copy(torch.zeros(5000, 500, device=DEVICE), torch.ones(5000, 500))
    assert len(os.listdir("/proc/self/task")) <= before + 1  # the driver may have begun one of its own


def test_what_cannot_be_copied_is_an_error() -> None:
    with closing(Upload(DEVICE)) as making:
        with pytest.raises(ValueError, match="size"):
            making.copy(torch.zeros(3, 5, device=DEVICE), torch.zeros(3, 4))
        making.copy(torch.zeros(3, 5), torch.zeros(3, 5))  # a target that the device does not know
        with pytest.raises(KernelError, match="CUDA error"):
            making.finish()
