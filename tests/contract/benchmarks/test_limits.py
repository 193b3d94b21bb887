"""The limit that figures of the engine are measured by is one that no engine on the card can beat."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from limits import Card, limit
from workloads import Request

from octavo.worker.models.config.model_config import ModelConfig

SHAPE = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "intermediate": 256, "vocabulary": 1000}
MODEL = cast(ModelConfig, SimpleNamespace(**SHAPE))
LAYER = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 256
WEIGHTS = 2 * LAYER + 64_000
KV_BYTES, PAIR_FLOPS = 2 * 2 * 2 * 2 * 16, 4 * 2 * 64  # of a token; of a token and one that it sees
FAST = 1e30


def requests(count: int, prompt: int, new: int) -> list[Request]:
    return [Request([0] * prompt, new) for _ in range(count)]


def test_a_step_of_one_row_reads_the_weights() -> None:
    found = limit(MODEL, requests(1, 10, 4), 0, Card(1.0, FAST))
    assert found.steps == pytest.approx(3 * 2 * WEIGHTS)
    assert found.attention == pytest.approx(KV_BYTES * (11 + 12 + 13))
    assert found.prompts == pytest.approx(0.0)


def test_a_step_of_many_rows_multiplies_them() -> None:
    card = Card(1.0, 10.0)  # ten rows take as long as their weights
    few, many = (limit(MODEL, requests(rows, 10, 2), 0, card).steps for rows in (10, 20))
    assert few == pytest.approx(2 * WEIGHTS) and many == pytest.approx(2 * few)


def test_a_step_has_the_rows_that_still_run() -> None:
    card = Card(FAST, 1.0)
    uneven = limit(MODEL, [*requests(3, 10, 2), *requests(1, 10, 5)], 0, card)
    assert uneven.steps == pytest.approx(2 * WEIGHTS * (4 + 1 + 1 + 1))


def test_prompts_cost_products_and_causal_attention() -> None:
    found = limit(MODEL, requests(2, 10, 1), 0, Card(FAST, 1.0))
    assert found.prompts == pytest.approx(2 * 2 * (2 * LAYER * 10 + 64_000) + 2 * PAIR_FLOPS * 55)
    assert found.steps == found.attention == 0


def test_what_prompts_share_is_computed_and_read_once() -> None:
    alone = limit(MODEL, requests(1, 12, 2), 0, Card(1.0, 1.0))
    shared = limit(MODEL, requests(2, 12, 2), 12, Card(1.0, 1.0))
    assert shared.prompts == pytest.approx(alone.prompts + 2 * 64_000)  # its own logits
    by_bytes = limit(MODEL, requests(2, 12, 2), 12, Card(1.0, FAST))
    assert by_bytes.attention == pytest.approx(KV_BYTES * (12 + 1 + 1))
    by_flops = limit(MODEL, requests(2, 12, 2), 12, Card(FAST, 1.0))
    assert by_flops.attention == pytest.approx(2 * PAIR_FLOPS * 13)
