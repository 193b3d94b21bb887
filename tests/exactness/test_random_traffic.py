"""Whatever runs beside a request, it is answered as alone: random traffic on a KV cache that is short, for all splits.

`python benchmarks/exact_traffic.py --seed SEED` runs one seed, and more of them for as long as one likes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.models.checkpoints import random_checkpoint
from support.worker.alone import Alone, Compared
from support.worker.exact_rounds import SHAPE, Rounds
from support.worker.ranks import Ranks

from octavo.worker.runner.base import RunnerConfig
from octavo.worker.runner.cpu.runner import Runner

pytestmark = pytest.mark.timeout(600)  # seconds where nothing else runs
SEEDS = {(1, 1): (1, 3), (2, 1): (3,), (1, 2): (1,), (2, 2): (3,)}  # by tensor and pipeline


@dataclass(frozen=True)
class Model:
    config: RunnerConfig
    rounds: Rounds


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = random_checkpoint(tmp_path_factory.mktemp("model"), seed=5, config=SHAPE)
    config = RunnerConfig(folder, threads=1, max_requests=32, kv_cache_bytes=16 << 20)
    return Model(config, Rounds(Alone(Runner(config)), SHAPE["vocab_size"]))


@pytest.fixture(scope="module", params=SEEDS, ids=lambda split: f"tensor {split[0]} pipeline {split[1]}")
def found(request: pytest.FixtureRequest, model: Model) -> Iterator[Compared]:
    tensor, pipeline = request.param
    ranks = Ranks(model.config, tensor, pipeline)
    try:
        found = Compared([])
        for seed in SEEDS[tensor, pipeline]:
            found.add(model.rounds.run(ranks, seed, tensor, pipeline))
        yield found
    finally:
        ranks.close()


def test_each_request_is_answered_as_alone(found: Compared) -> None:
    assert not found.wrong, "\n".join((str(found), *found.wrong))
    assert found.close <= found.requests // 50, f"choices are hardly ever as close as that: {found}"


@pytest.mark.parametrize("found", [(1, 1)], indirect=True, ids=["one rank"])
def test_requests_are_preempted_cancelled_and_found_in_the_prefix_cache(found: Compared) -> None:
    """Or the other test says nothing about it."""
    assert found.preemptions and found.cancelled and found.hits, str(found)
