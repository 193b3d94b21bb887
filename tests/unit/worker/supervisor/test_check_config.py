"""A setting that the model cannot fulfil is refused before a process starts, by field and with a way out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.models.checkpoints import random_checkpoint

from octavo.worker.config import Config
from octavo.worker.devices import gpu
from octavo.worker.errors import ConfigError
from octavo.worker.models.folder.checkpoint import Checkpoint, inspect
from octavo.worker.supervisor.check_config import check_fit

CONFIG = Config("m", "m", *(f"unix:/{name}" for name in ("serve", "group", "status", "health", "metrics")))
BLOCK_BYTES = 2 * 4 * 2 * 16 * 16  # one block of four layers with two heads of 16, in numbers of one byte


@pytest.fixture
def model(tmp_path: Path) -> Checkpoint:
    return inspect(random_checkpoint(tmp_path, config={"max_position_embeddings": 512}))


@pytest.mark.parametrize("context_length", [None, 1, 512])
def test_a_context_up_to_the_models_fits(model: Checkpoint, context_length: int | None) -> None:
    check_fit(replace(CONFIG, context_length=context_length), model)


def test_a_context_beyond_the_models_is_refused(model: Checkpoint) -> None:
    with pytest.raises(ConfigError, match=r"contextLength .*513 is beyond the model's 512; give at most") as caught:
        check_fit(replace(CONFIG, context_length=513), model)
    assert caught.value.reason == "ConfigInvalid"


@pytest.mark.parametrize("device", ["cpu", "auto", "cuda"])
@pytest.mark.parametrize("dtype", ["auto", "float32"])
@pytest.mark.parametrize("likely", [True, False])
def test_memory_for_not_even_one_block_is_refused(
    model: Checkpoint, monkeypatch: pytest.MonkeyPatch, device: str, dtype: str, likely: bool
) -> None:
    monkeypatch.setattr(gpu, "likely", lambda: likely)
    halves = dtype == "auto" and (device == "cuda" or (device == "auto" and likely))
    width = 2 if halves else 4
    needed = 2 * width * BLOCK_BYTES  # one block pads tables
    config = replace(CONFIG, device=device, dtype=dtype, kv_cache_bytes=max(needed, 2**16))
    check_fit(config, model)
    large = replace(model, config=replace(model.config, layers=4 * 64))
    with pytest.raises(ConfigError, match=rf"kvCacheMemory .*give at least {64 * needed}$"):
        check_fit(config, large)


def test_a_split_that_works_fits(model: Checkpoint) -> None:
    for tensor, pipeline in ((1, 1), (2, 1), (4, 4), (1, 3)):
        check_fit(replace(CONFIG, device="cpu", tensor=tensor, pipeline=pipeline, **pods(pipeline)), model)


def test_a_split_that_cannot_work_is_refused_with_what_would(model: Checkpoint) -> None:
    with pytest.raises(ConfigError, match=r"parallelism.tensor \(--tensor\): 3 ranks .* 4 heads.*; give 1, 2 or 4$"):
        check_fit(replace(CONFIG, device="cpu", tensor=3), model)
    with pytest.raises(ConfigError, match=r"parallelism.pipeline \(--pipeline\): 5 stages .*; give at most 4$"):
        check_fit(replace(CONFIG, device="cpu", pipeline=5, **pods(5)), model)


def pods(count: int) -> dict[str, Any]:
    return {"peers": tuple(f"unix:/{pod}" for pod in range(count))}


def test_memory_is_that_of_a_stage(model: Checkpoint) -> None:
    half = replace(CONFIG, device="cpu", pipeline=2, kv_cache_bytes=2**16, **pods(2))
    large = replace(model, config=replace(model.config, layers=16, windows=(0,) * 16))
    check_fit(half, large)
    with pytest.raises(ConfigError, match="kvCacheMemory"):
        check_fit(replace(half, pipeline=1, peers=()), large)


def test_what_a_gpu_has_left_is_for_its_rank_to_say(model: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "likely", lambda: True)
    huge = replace(model, config=replace(model.config, layers=10**7))
    check_fit(replace(CONFIG, device="auto"), huge)
    with pytest.raises(ConfigError, match="kvCacheMemory"):
        check_fit(replace(CONFIG, device="cpu"), huge)
