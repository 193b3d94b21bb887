"""Each rank reads its slices of the files and nothing else: together the whole model, once."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.models.checkpoints import random_checkpoint
from support.processes.threads import ThreadCollective, Together

from octavo.kernels.backend import choose
from octavo.worker.models.decoder import Decoder
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.models.folder.safetensors_header import Tensor
from octavo.worker.models.sharding.shard import Shard
from octavo.worker.models.weights import Weights


class Opened(Mapping[str, Tensor]):
    """Tensors of a checkpoint, and how often each was asked for."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self.names: Counter[str] = Counter()

    def __getitem__(self, name: str) -> Tensor:
        self.names[name] += 1
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def read(folder: Path, shard: Shard) -> tuple[Counter[str], int]:
    """Names of the tensors that a rank opens, and the bytes that it reads of them."""
    checkpoint = inspect(folder)
    opened = Opened(checkpoint.tensors)
    count = 0

    def copy(target: torch.Tensor, source: torch.Tensor) -> None:
        nonlocal count
        count += source.numel() * source.element_size()
        target.copy_(source)

    weights = Weights(replace(checkpoint, tensors=opened), torch.float32, shard, copy=copy)
    Decoder(weights, choose("reference"), 64, ThreadCollective(Together(shard.size), shard.rank), lambda percent: None)
    return opened.names, count


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 4)])
def test_ranks_read_the_whole_model_once_between_them(tmp_path: Path, tensor: int, pipeline: int, tied: bool) -> None:
    """But norms, which all have; KV heads that several have; and a tied head, which the last stage has as well."""
    folder = random_checkpoint(tmp_path, shards=3, config={"vocab_size": 513, "tie_word_embeddings": tied})
    tensors = inspect(folder).tensors
    ranks = [read(folder, Shard(rank, tensor, stage, pipeline)) for stage in range(pipeline) for rank in range(tensor)]
    once = sum(one.end - one.begin for one in tensors.values())
    again = sum(size(one) * (tensor - 1) for name, one in tensors.items() if "norm" in name)
    if tensor == 4:  # two KV heads
        again += sum(size(one) for name, one in tensors.items() if "k_proj" in name or "v_proj" in name)
    if tied and pipeline > 1:
        again += size(tensors["model.embed_tokens.weight"])
    assert sum(count for _, count in ranks) == once + again


def size(tensor: Tensor) -> int:
    return tensor.end - tensor.begin


def test_a_stage_opens_only_its_layers_and_what_its_ends_need(tmp_path: Path) -> None:
    folder = random_checkpoint(tmp_path)
    shards = [Shard(stage=stage, stages=4) for stage in range(4)]
    for stage, shard in enumerate(shards):
        names = read(folder, shard)[0]
        assert set(names.values()) == {2}, "once to read and once to hash"
        layers = {int(name.split(".")[2]) for name in names if ".layers." in name}
        assert layers == set(shard.layers(inspect(folder).config))
        ends = {name for name in names if ".layers." not in name}
        expected = {0: {"model.embed_tokens.weight"}, 3: {"model.norm.weight", "lm_head.weight"}}
        assert ends == expected.get(stage, set())
