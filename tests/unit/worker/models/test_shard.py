"""The parts that ranks load are together the whole model, and none is loaded twice."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from support.models.checkpoints import random_checkpoint

from octavo.worker.errors import ConfigError
from octavo.worker.models.config.tensor_specs import LinearShape, layer_prefix
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.models.registry import ARCHITECTURES
from octavo.worker.models.sharding.shard import Shard
from octavo.worker.models.weights import Weights


def weights(folder: Path, rank: int = 0, size: int = 1) -> Weights:
    return Weights(inspect(folder), torch.float32, Shard(rank, size))


@dataclass(frozen=True)
class LayerWeights:
    """What a rank has of a layer."""

    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    o: torch.Tensor
    o_bias: torch.Tensor | None
    gate_up: torch.Tensor
    down: torch.Tensor
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None


def layer_of(weights: Weights, index: int) -> LayerWeights:
    found = dict[str, torch.Tensor]()
    for name, shape in ARCHITECTURES[weights.config.architecture].parameters(weights.config).items():
        if isinstance(shape, LinearShape):
            found |= {f"{name}.{kind}": one for kind, one in weights.linear(layer_prefix(index), shape).items()}
        else:
            found[name] = weights.tensor(layer_prefix(index) + shape.name)
    matrices = [found[f"{name}.weight"] for name in ("qkv", "o", "gate_up", "down")]
    qkv, o, gate_up, down = matrices
    biases = [found.get(name) for name in ("qkv.bias", "o.bias")]
    return LayerWeights(qkv, biases[0], o, biases[1], gate_up, down, found.get("q_norm"), found.get("k_norm"))


def thirds(fused: torch.Tensor, sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return torch.split(fused, sizes)


def test_two_ranks_hold_the_whole_model_between_them(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path, shards=2)
    whole, parts = weights(folder), [weights(folder, rank, 2) for rank in range(2)]
    layer, halves = layer_of(whole, 1), [layer_of(part, 1) for part in parts]
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
    whole = thirds(layer_of(weights(folder), 0).qkv, (64, 32, 32))
    for rank in range(4):
        queries, keys, values = thirds(layer_of(weights(folder, rank, 4), 0).qkv, (16, 16, 16))
        head = slice(16 * (rank // 2), 16 * (rank // 2) + 16)
        assert torch.equal(queries, whole[0][16 * rank : 16 * rank + 16])
        assert torch.equal(keys, whole[1][head]) and torch.equal(values, whole[2][head])


def test_biases_are_split_like_their_rows_and_that_of_o_is_added_once(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path, config={"attention_bias": True})
    layer, halves = layer_of(weights(folder), 1), [layer_of(weights(folder, rank, 2), 1) for rank in range(2)]
    assert layer.qkv_bias is not None and layer.o_bias is not None and halves[0].o_bias is not None
    split = [thirds(half.qkv_bias, (32, 16, 16)) for half in halves if half.qkv_bias is not None]
    assert torch.equal(torch.cat([torch.cat(pair) for pair in zip(*split, strict=True)]), layer.qkv_bias)
    assert torch.equal(halves[0].o_bias, layer.o_bias) and halves[1].o_bias is None


def test_every_rank_has_the_norms_of_heads(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path, config={"architectures": ["Qwen3ForCausalLM"], "head_dim": 16})
    whole = layer_of(weights(folder), 2)
    assert whole.q_norm is not None and whole.k_norm is not None
    for rank in range(2):
        part = layer_of(weights(folder, rank, 2), 2)
        assert part.q_norm is not None and torch.equal(part.q_norm, whole.q_norm)
        assert part.k_norm is not None and torch.equal(part.k_norm, whole.k_norm)


def test_an_uneven_vocabulary_is_padded_with_zeros(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path, config={"vocab_size": 511})
    together = torch.cat([weights(folder, rank, 4).embedding() for rank in range(4)])
    assert torch.equal(together[:511], weights(folder).embedding())
    assert together.shape[0] == 512 and not together[511].any()


def test_a_size_that_does_not_divide_the_heads_is_refused_with_the_sizes_that_do(tmp_path: Path) -> None:
    config = {"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8, "intermediate_size": 144}
    with pytest.raises(ConfigError, match=r"parallelism.tensor \(--tensor\): 2 ranks .* 9 heads.*; give 1, 3 or 9$"):
        weights(random_checkpoint(tmp_path, config=config), 0, 2)


def test_more_stages_than_layers_are_refused(tmp_path: Path) -> None:
    checkpoint = inspect(random_checkpoint(tmp_path))
    Shard(stages=4).check(checkpoint.config)
    with pytest.raises(ConfigError, match=r"parallelism.pipeline \(--pipeline\): 5 stages .* give at most 4$"):
        Shard(stages=5).check(checkpoint.config)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    "shard", [Shard(), Shard(1, 2), Shard(3, 4), Shard(0, 2, 0, 2), Shard(0, 1, 1, 2), Shard(1, 2, 1, 3)]
)
def test_a_rank_knows_how_many_numbers_its_weights_have(tmp_path: Path, tied: bool, shard: Shard) -> None:
    checkpoint = inspect(random_checkpoint(tmp_path, config={"vocab_size": 513, "tie_word_embeddings": tied}))
    mine, config = Weights(checkpoint, torch.float32, shard), checkpoint.config
    layers = [layer_of(mine, index) for index in shard.layers(config)]
    matrices = [matrix for one in layers for matrix in (one.qkv, one.o, one.gate_up, one.down)]
    if shard.first:
        matrices.append(mine.embedding())
    if shard.last and not (tied and shard.first):
        matrices.append(mine.head())
    assert shard.parameters(config) == sum(matrix.numel() for matrix in matrices)
