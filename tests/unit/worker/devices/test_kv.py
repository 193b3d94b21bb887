"""KV memory follows the setting, else the container's limit; a context that does not fit is lowered with a note."""

from pathlib import Path

import pytest
from support.models.checkpoints import random_checkpoint

from octavo.worker.devices.kv import KvShape, plan_kv
from octavo.worker.devices.memory import kv_cache_bytes, threads
from octavo.worker.errors import ConfigError
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.topology import Layout

GIB = 1 << 30
SHAPE = KvShape(layers=2, kv_heads=1, head_dim=8, block_size=16, item_bytes=4)  # 2 KiB a block


def write(root: Path, name: str, content: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return root


def test_a_setting_wins_over_limits(tmp_path: Path) -> None:
    assert kv_cache_bytes(5, write(tmp_path, "memory.max", str(8 * GIB))) == 5


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_quarter_of_the_memory_limit_is_the_default(tmp_path: Path, name: str) -> None:
    assert kv_cache_bytes(None, write(tmp_path, name, f"{8 * GIB}\n")) == 2 * GIB


@pytest.mark.parametrize(
    ("name", "content"), [("memory.max", "max\n"), ("memory/memory.limit_in_bytes", "9223372036854771712"), ("x", "")]
)
def test_without_a_limit_the_default_is_one_gib(tmp_path: Path, name: str, content: str) -> None:
    assert kv_cache_bytes(None, write(tmp_path, name, content)) == GIB


def test_threads_follow_the_cpu_quota(tmp_path: Path) -> None:
    assert threads(None, write(tmp_path, "cpu.max", "50000 100000")) == 1
    assert threads(7, tmp_path) == 7


def test_the_ranks_of_a_pod_share_its_memory_and_its_cpus(tmp_path: Path) -> None:
    limited = write(tmp_path, "memory.max", str(12 * GIB))
    assert [kv_cache_bytes(None, limited, ranks) for ranks in (1, 3)] == [3 * GIB, GIB]
    assert kv_cache_bytes(5, limited, ranks=3) == 5, "what was asked for is of one rank"
    cpus = threads(None, tmp_path)
    assert [threads(None, tmp_path, ranks) for ranks in (1, cpus, 10 * cpus)] == [cpus, 1, 1]
    assert threads(7, tmp_path, ranks=3) == 7


def test_the_stage_with_the_most_layers_decides_the_number_of_blocks(tmp_path: Path) -> None:
    model = inspect(random_checkpoint(tmp_path)).config  # 4 layers, 2 KV heads of 16
    shapes = {(1, 1): (4, 2), (2, 1): (4, 1), (4, 1): (4, 1), (1, 3): (2, 2), (2, 4): (1, 1)}
    for (tensor, pipeline), (layers, heads) in shapes.items():
        assert KvShape.of(model, Layout(tensor, pipeline, tensor), 16, 4) == KvShape(layers, heads, 16, 16, 4)


def test_a_context_that_fits_is_kept_and_memory_not_wasted() -> None:
    plan = plan_kv(SHAPE, GIB, context_length=100, max_requests=3)
    assert (plan.blocks, plan.context_length, plan.note) == (21, 100, "")


def test_a_context_that_does_not_fit_is_lowered_with_a_note() -> None:
    plan = plan_kv(SHAPE, 5 * SHAPE.block_bytes, context_length=100, max_requests=3)
    assert (plan.blocks, plan.context_length) == (4, 64)
    assert "from 100 to 64" in plan.note


def test_memory_for_not_even_one_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="kv-cache-memory"):
        plan_kv(SHAPE, SHAPE.block_bytes, context_length=100, max_requests=3)
