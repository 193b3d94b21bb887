"""The parts that ranks load are together the whole model, and none is loaded twice."""

from pathlib import Path

import pytest
import torch
from support.checkpoints import random_checkpoint

from octavo.worker.models.checkpoint import inspect
from octavo.worker.models.shard import Shard
from octavo.worker.models.weights import Weights


def weights(folder: Path, rank: int = 0, size: int = 1) -> Weights:
    return Weights(inspect(folder), torch.float32, Shard(rank, size))


def thirds(fused: torch.Tensor, sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return torch.split(fused, sizes)


def test_two_ranks_hold_the_whole_model_between_them(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path, shards=2)
    whole, parts = weights(folder), [weights(folder, rank, 2) for rank in range(2)]
    layer, halves = whole.layer(1), [part.layer(1) for part in parts]
    assert torch.equal(torch.cat([half.o for half in halves], dim=1), layer.o)
    assert torch.equal(torch.cat([half.down for half in halves], dim=1), layer.down)
    split = [thirds(half.qkv, (32, 16, 16)) for half in halves]
    assert torch.equal(torch.cat([torch.cat(pair) for pair in zip(*split, strict=True)]), layer.qkv)
    split = [thirds(half.gate_up, (64, 64)) for half in halves]
    assert torch.equal(torch.cat([torch.cat(pair) for pair in zip(*split, strict=True)]), layer.gate_up)
    assert torch.equal(torch.cat([part.embedding() for part in parts]), whole.embedding())
    assert torch.equal(torch.cat([part.head() for part in parts]), whole.head())


def test_kv_heads_are_replicated_beyond_their_number(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path)
    whole = thirds(weights(folder).layer(0).qkv, (64, 32, 32))
    for rank in range(4):
        queries, keys, values = thirds(weights(folder, rank, 4).layer(0).qkv, (16, 16, 16))
        head = slice(16 * (rank // 2), 16 * (rank // 2) + 16)
        assert torch.equal(queries, whole[0][16 * rank : 16 * rank + 16])
        assert torch.equal(keys, whole[1][head]) and torch.equal(values, whole[2][head])


def test_an_uneven_vocabulary_is_padded_with_zeros(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path, config={"vocab_size": 511})
    together = torch.cat([weights(folder, rank, 4).embedding() for rank in range(4)])
    assert torch.equal(together[:511], weights(folder).embedding())
    assert together.shape[0] == 512 and not together[511].any()


def test_a_size_that_does_not_divide_the_heads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_attention_heads"):
        weights(random_checkpoint(tmp_path), 0, 3)
