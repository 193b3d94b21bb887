"""A rank on a CPU that wakes has the weights that fell asleep, or says that they are others."""

import random
from pathlib import Path

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.worker.engine import LocalEngine

from octavo.worker.errors import CannotWake, ModelError
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.loading import ModelLoader
from octavo.worker.runner.cpu.runner import Runner

PROMPTS = [[5, 6, 7], list(range(40))]
ROUNDS = 12


def tokens(engine: LocalEngine) -> list[list[int]]:
    return [answer.ids for answer in engine.generate(PROMPTS, 6)]


def replace(folder: Path, values: dict[str, bytes]) -> None:
    for name, data in values.items():
        (folder / name).write_bytes(data)


def test_files_that_changed_are_refused_each_time_and_the_first_ones_taken(tmp_path: Path) -> None:
    folder, other = random_checkpoint(tmp_path / "a", seed=1), random_checkpoint(tmp_path / "b", seed=2)
    own, others = ({file.name: file.read_bytes() for file in place.glob("*.safetensors")} for place in (folder, other))
    (name,) = own
    spoilt = {name: own[name][:-1] + bytes([own[name][-1] ^ 1])}  # one bit of the last value
    runner = Runner(RunnerConfig(folder, max_requests=4, kv_cache_bytes=1 << 20, threads=1))
    engine = LocalEngine(runner)
    right = tokens(engine)
    chance = random.Random(3)
    for _ in range(ROUNDS):
        assert runner.sleep(keep_kv=False) > 0 and runner.sleep(keep_kv=False) == 0
        engine.forget()
        if (wrong := chance.choice([None, others, spoilt])) is not None:
            replace(folder, wrong)
            with pytest.raises(ModelError, match="not the model that fell asleep"):
                runner.wake()
            replace(folder, own)
        assert runner.wake() > 0 and runner.wake() == 0
        assert tokens(engine) == right


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (MemoryError(), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "can't allocate memory"),
        (OSError(5, "Input/output error"), "Input/output error"),
    ],
)
@pytest.mark.parametrize("fails", ["load_again", "zeros"])
def test_what_is_lacking_at_a_wake_leaves_the_rank_asleep_with_nothing_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, failure: Exception, said: str
) -> None:
    runner = Runner(
        RunnerConfig(random_checkpoint(tmp_path, seed=1), max_requests=4, kv_cache_bytes=1 << 20, threads=1)
    )
    engine = LocalEngine(runner)
    right = tokens(engine)
    freed = runner.sleep(keep_kv=False)
    engine.forget()

    def fail(*arguments: object, **named: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(*((torch, "zeros") if fails == "zeros" else (ModelLoader, "load_again")), fail)
        with pytest.raises(CannotWake, match=said):
            runner.wake()
    assert runner.sleep(keep_kv=False) == 0, "what was loaded before it failed is gone"
    assert runner.wake() == freed
    assert tokens(engine) == right


def test_a_file_that_cannot_be_read_at_a_wake_can_be_at_the_next(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path / "model", seed=1)
    runner = Runner(RunnerConfig(folder, max_requests=4, kv_cache_bytes=1 << 20, threads=1))
    freed = runner.sleep(keep_kv=False)
    (folder / "config.json").rename(tmp_path / "kept")
    (folder / "config.json").mkdir()  # reading it is an error, to root too
    with pytest.raises(CannotWake, match=r"config.json.*wake it again"):
        runner.wake()
    (folder / "config.json").rmdir()
    (tmp_path / "kept").rename(folder / "config.json")
    assert runner.wake() == freed
