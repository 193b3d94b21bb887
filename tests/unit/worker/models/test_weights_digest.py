"""The digest tells any two sets of weights apart, and is the same however ranks share a model and files hold it."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.processes.threads import ThreadCollective, Together

from octavo.kernels.backend import choose
from octavo.worker.errors import ModelError
from octavo.worker.models import weights_digest
from octavo.worker.models.decoder import Decoder
from octavo.worker.models.folder.checkpoint import digest_of, inspect
from octavo.worker.models.sharding.shard import Shard
from octavo.worker.models.weights import Weights
from octavo.worker.models.weights_digest import WeightsDigest, own_blocks

BLOCK = 1000  # bytes: a tensor of the tests has from one to hundreds


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_digest, "BLOCK_BYTES", BLOCK)


def digest(folder: Path, tensor: int = 1, pipeline: int = 1) -> str:
    """As the ranks of a group compute it, each loading its part."""
    checkpoint, total = inspect(folder), 0
    for stage in range(pipeline):
        for rank in range(tensor):
            shard = Shard(rank, tensor, stage, pipeline)
            weights = Weights(checkpoint, torch.float32, shard, hash_threads=2)
            together = ThreadCollective(Together(tensor), rank)
            Decoder(weights, choose("reference"), 64, together, lambda percent: None)
            total += weights.digest.result()
    return digest_of(checkpoint.outline, total)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_it_is_the_same_on_any_number_of_ranks_and_in_any_files(tmp_path: Path, tied: bool, biases: bool) -> None:
    config = {"vocab_size": 513, "tie_word_embeddings": tied, "attention_bias": biases}
    whole = random_checkpoint(tmp_path / "one", config=config)
    split = random_checkpoint(tmp_path / "several", shards=3, config=config)
    splits = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 4)]
    digests = {digest(folder, *ranks) for ranks in splits for folder in (whole, split)}
    assert len(digests) == 1


def test_two_fine_tunes_of_one_layout_differ(tmp_path: Path) -> None:
    one, other = (random_checkpoint(tmp_path / str(seed), seed=seed) for seed in (1, 2))
    assert inspect(one).outline == inspect(other).outline
    assert digest(one) != digest(other)


def test_a_changed_byte_of_any_tensor_changes_it(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path)
    tensors = inspect(folder).tensors
    seen = {digest(folder)}
    for tensor in tensors.values():
        at = tensor.begin + (tensor.end - tensor.begin) * 2 // 3
        data = bytearray(tensor.file.read_bytes())
        data[at] ^= 1
        tensor.file.write_bytes(data)
        seen.add(digest(folder))
    assert len(seen) == 1 + len(tensors)


def test_values_that_change_places_change_it(tmp_path: Path) -> None:
    """A sum has no order, so each block's hash names its place."""
    folder = random_checkpoint(tmp_path)
    before, tensors = digest(folder), inspect(folder).tensors
    blocks = next(one for one in tensors.values() if one.end - one.begin >= 2 * BLOCK)
    gate, up = (tensors[f"model.layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up"))
    size = gate.end - gate.begin
    for first, second, count in ((blocks.begin, blocks.begin + BLOCK, BLOCK), (gate.begin, up.begin, size)):
        data = bytearray(blocks.file.read_bytes())
        kept = bytes(data)
        data[first : first + count] = kept[second : second + count]
        data[second : second + count] = kept[first : first + count]
        blocks.file.write_bytes(data)
        assert digest(folder) != before
        blocks.file.write_bytes(kept)
    assert digest(folder) == before


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_ranks_share_the_blocks_of_each_tensor(size: int) -> None:
    few = Counter[int]()
    for count in (1, 2, 7, 8, 9, 100):
        for name in map(str, range(50)):
            owned = [list(own_blocks(name, count, rank, size)) for rank in range(size)]
            assert sorted(block for one in owned for block in one) == list(range(count))
            if count == 1:
                few.update(rank for rank, one in enumerate(owned) if one)
            if count >= size:
                assert max(map(len, owned)) - min(map(len, owned)) <= 1
    assert set(few) == set(range(size)), "small tensors are not all one rank's"


def test_a_file_that_becomes_shorter_is_named(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path)
    tensors = inspect(folder).tensors
    last = max(tensors.values(), key=lambda one: one.begin)
    last.file.write_bytes(last.file.read_bytes()[: last.begin + 1])
    part = WeightsDigest(tensors, 0, 1)
    part.add(last.name)
    with pytest.raises(ModelError, match=f"ends within tensor '{last.name}'"):
        part.result()
