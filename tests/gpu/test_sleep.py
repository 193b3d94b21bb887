"""A rank gives its GPU's memory back and has it again: graphs captured before compute the same tokens after.

In float32 tokens do not depend on how prompts are cut, nor on what comes from the prefix cache. In bfloat16 they may:
prompts run one by one there, so that none is cut otherwise the next time, and without a prefix of theirs.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.worker.engine import Answer, LocalEngine

from octavo.kernels.cuda.region import Region
from octavo.kernels.errors import KernelError
from octavo.worker.errors import CannotWake
from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import DeviceRunner, RunnerConfig
from octavo.worker.runner.cuda.buffers import memory_at

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

DEVICE = torch.device("cuda")
KV_BYTES = {"float32": 3 << 30, "bfloat16": 3 << 29}  # of 32 requests of 4,096 tokens
SHAPE = {
    "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "intermediate_size": 4096, "num_hidden_layers": 12, "vocab_size": 32000,
    "max_position_embeddings": 4096,
}  # fmt: skip
SLACK = 64 << 20  # what the driver takes for itself by and by
LENGTHS = (1, 17, 64, 130, 700, 1500)  # no graph is as long as the last
TOKENS = 40


@pytest.fixture(scope="module", params=list(KV_BYTES))
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, dtype: str) -> Iterator[DeviceRunner]:
    folder = random_checkpoint(tmp_path_factory.mktemp("model"), seed=3, config=SHAPE)
    yield open_runner(RunnerConfig(folder, device="cuda", dtype=dtype, max_requests=32))
    torch.cuda.empty_cache()


@pytest.fixture(scope="module")
def engine(runner: DeviceRunner) -> LocalEngine:
    engine = LocalEngine(runner)
    engine.capture()
    return engine


def answers(engine: LocalEngine, dtype: str) -> list[Answer]:
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, 256, (length,), generator=generator).tolist() for length in LENGTHS]
    if dtype == "float32":
        return engine.generate(prompts, TOKENS)
    return [engine.generate([prompt], TOKENS)[0] for prompt in prompts]


def cold(engine: LocalEngine, dtype: str) -> list[list[int]]:
    """Tokens; nothing comes from the prefix cache."""
    engine.forget()
    found = answers(engine, dtype)
    assert not any(one.cached for one in found)
    return [one.ids for one in found]


def free() -> int:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def spoil() -> None:
    """What was given back holds something else now: the driver may hand out the same memory again."""
    others = torch.full((free() // 2,), 0xFF, dtype=torch.uint8, device=DEVICE)
    torch.cuda.synchronize()
    del others
    torch.cuda.empty_cache()


@pytest.mark.parametrize("rounds", [1, 20])
def test_a_rank_that_slept_gives_the_same_tokens_and_its_memory_was_free(
    runner: DeviceRunner, engine: LocalEngine, dtype: str, rounds: int
) -> None:
    before = cold(engine, dtype)
    for _ in range(rounds):
        had, began = free(), time.monotonic()
        freed = runner.sleep(keep_kv=False)
        asleep = time.monotonic()
        given = free() - had
        spoil()
        waking = time.monotonic()
        taken = runner.wake()
        print(f"asleep in {asleep - began:.3f} s, {given >> 20} MiB freed, awake in {time.monotonic() - waking:.3f} s")
        assert abs(given - freed) < SLACK and given > KV_BYTES[dtype] and taken > KV_BYTES[dtype]
        assert cold(engine, dtype) == before


@pytest.mark.parametrize("dtype", ["float32"], indirect=True)
def test_a_kept_kv_cache_is_read_after_the_sleep(runner: DeviceRunner, engine: LocalEngine, dtype: str) -> None:
    before = cold(engine, dtype)
    freed = runner.sleep(keep_kv=True)
    assert 0 < freed < KV_BYTES[dtype]
    runner.wake()
    after = answers(engine, dtype)
    assert [one.ids for one in after] == before
    assert sum(one.cached for one in after) >= sum(length // 16 * 16 - 16 for length in LENGTHS[1:])


def test_a_second_sleep_may_drop_what_the_first_kept_and_a_second_wake_changes_nothing(
    runner: DeviceRunner, engine: LocalEngine, dtype: str
) -> None:
    before = cold(engine, dtype)
    runner.sleep(keep_kv=True)
    assert runner.sleep(keep_kv=True) == 0
    assert runner.sleep(keep_kv=False) >= KV_BYTES[dtype]
    runner.wake()
    assert runner.wake() == 0
    assert cold(engine, dtype) == before


@pytest.mark.parametrize("lacking", ["bytes of the device", "working memory"])
def test_without_memory_a_rank_stays_asleep_and_wakes_when_there_is_some(
    runner: DeviceRunner, engine: LocalEngine, dtype: str, lacking: str
) -> None:
    before = cold(engine, dtype)
    runner.sleep(keep_kv=False)
    taken = runner.wake()
    runner.sleep(keep_kv=False)
    room = taken - (8 << 20) if lacking == "working memory" else KV_BYTES[dtype] // 2
    others = torch.empty(free() - room, dtype=torch.uint8, device=DEVICE)
    left = free()
    with pytest.raises(CannotWake, match=rf"{lacking}.*out of memory.*GiB.*are free"):
        runner.wake()
    assert free() == left, "what it had got by then is given back"
    del others
    torch.cuda.empty_cache()
    runner.wake()
    assert cold(engine, dtype) == before


def test_a_region_comes_back_as_it_was_where_it_was_held_and_zeroed_elsewhere() -> None:
    stream = torch.cuda.Stream()
    had = free()
    held, unheld = Region(DEVICE, 1 << 30, 2 << 20), Region(DEVICE, 1 << 30, 2 << 20)
    size = 9 << 20
    places = [region.allocate(size) for region in (held, unheld)]
    views = [memory_at(place, (size // 4,), (1,), torch.float32, DEVICE) for place in places]
    values = torch.randn(size // 4, device=DEVICE)
    for view in views:
        view.copy_(values)
    torch.cuda.synchronize()
    held.hold()
    for region in (held, unheld):
        region.release()
    assert had - free() < size
    for region in (held, unheld):
        region.back()
        region.fill(stream)
    stream.synchronize()
    assert torch.equal(views[0], values) and not views[1].any()
    with pytest.raises(KernelError, match="out of memory"):
        held.allocate(2 << 30)
    held.close()
    unheld.close()


def test_a_runner_that_is_gone_has_given_everything_back(tmp_path: Path) -> None:
    torch.cuda.empty_cache()
    had = free()
    other = open_runner(
        RunnerConfig(random_checkpoint(tmp_path, seed=4, config=SHAPE), device="cuda", dtype="float32", max_requests=32)
    )
    assert had - free() > KV_BYTES["float32"]
    del other
    torch.cuda.empty_cache()
    assert had - free() < KV_BYTES["float32"] // 4
