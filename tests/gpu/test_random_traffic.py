"""Whatever runs beside a request on a GPU, in float32 it is answered as alone there: random traffic on a short KV.

`python benchmarks/exact_traffic.py --device cuda` goes on for as long as one likes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.worker.alone import TOLERANCE, Alone, Compared
from support.worker.exact_rounds import SHAPE, Rounds

from octavo.worker.rank.devices import open_runner
from octavo.worker.runner.base import DeviceRunner, RunnerConfig

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SEEDS = (1, 2, 3)
WIDE = 4096  # hidden; logits of a random model grow with its root, and what rounding makes of them too
SHAPES: dict[str, dict[str, Any]] = {
    "small": SHAPE | {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64},
    "layers of an 8B": SHAPE | {
        "hidden_size": WIDE, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    runner: DeviceRunner
    rounds: Rounds


@pytest.fixture(scope="module", params=SHAPES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    shape = SHAPES[request.param]
    folder = random_checkpoint(tmp_path_factory.mktemp("model"), seed=5, config=shape)
    config = RunnerConfig(
        folder, device="cuda", dtype="float32", max_requests=32, max_batch_tokens=512, kv_cache_bytes=256 << 20
    )
    tolerance = TOLERANCE * (10 if shape["hidden_size"] == WIDE else 1)
    runner, other = open_runner(config), open_runner(config)
    yield Model(runner, Rounds(Alone(other, tolerance), shape["vocab_size"]))
    del runner, other
    torch.cuda.empty_cache()


@pytest.mark.parametrize("graphs", [False, True], ids=["kernels", "graphs"])
def test_each_request_is_answered_as_alone(model: Model, graphs: bool) -> None:
    found = Compared([])
    for seed in SEEDS:
        found.add(model.rounds.run(model.runner, seed, graphs=graphs))
    print(found)
    assert not found.wrong, "\n".join((str(found), *found.wrong))
    assert found.close <= found.requests // 50, f"choices are hardly ever as close as that: {found}"
    assert found.preemptions and found.cancelled and found.hits, "or the traffic says nothing about them"
