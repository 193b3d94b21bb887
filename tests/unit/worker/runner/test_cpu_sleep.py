"""A rank on a CPU that wakes has the weights that fell asleep, or says that they are others."""

import random
from pathlib import Path

import pytest
from support.models.checkpoints import random_checkpoint
from support.worker.engine import LocalEngine

from octavo.worker.errors import ModelError
from octavo.worker.runner.base import RunnerConfig
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
