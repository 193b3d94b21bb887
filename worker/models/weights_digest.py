"""A rank's part of the digest of a model: hashes of what it loads. No torch.

    tensor --> blocks of 16 MiB --> keyed sums of each 32 KiB (kernels/cpu/chunk_sums.py)
           --> SHA-256 of a block's sums, with the tensor's name, type, shape and the block's place
           --> sum modulo 2^256, over the blocks of a rank, then over the ranks --> the digest, with the outline

A sum has no order, and a block is of the file, not of a rank: the digest is the same on any number of ranks and stages,
and however the tensors are laid out in files. Each block of a stage is hashed by one of its ranks, as far as that can
be by the rank that reads it anyhow.

Blocks are hashed after the rank has read their tensor, so that the file is in memory, by threads that give way to all
else; what is left of it once the model is loaded goes on while the rank warms up.
"""

import hashlib
import mmap
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from octavo.kernels.cpu.chunk_sums import CHUNK_BYTES, chunk_sums
from octavo.worker.errors import INVALID, ModelError
from octavo.worker.models.folder.checkpoint import MODULUS
from octavo.worker.models.folder.safetensors_header import Tensor

BLOCK_BYTES = 512 * CHUNK_BYTES  # 1 or 2 ms of a thread, which holds Python's lock in between only
_MOST_THREADS = 8  # together as fast as memory
_NICE = 10  # of the threads


def own_blocks(name: str, count: int, rank: int, size: int) -> Iterator[int]:
    """Which of a tensor's blocks a rank hashes, one of the `size` of its stage: between them each block once. A run
    of them, which are the rank's own rows where rows are split; tensors of few blocks are spread by their names."""
    if count >= size:
        return iter(range(rank * count // size, (rank + 1) * count // size))
    first = zlib.crc32(name.encode())
    return (index for index in range(count) if (first + index) % size == rank)


def hash_block(tensor: Tensor, file: mmap.mmap, index: int) -> int:
    """Of bytes index * BLOCK_BYTES and on. file: that of the tensor. Raises ModelError."""
    begin = tensor.begin + index * BLOCK_BYTES
    end = min(begin + BLOCK_BYTES, tensor.end)
    digest = hashlib.sha256(repr((tensor.name, tensor.dtype, tensor.shape, index)).encode() + b"\0")
    block = np.frombuffer(file, np.uint8)[begin:end]
    if len(block) < end - begin:
        raise ModelError(INVALID, tensor.file, f"ends within tensor {tensor.name!r}: it has been changed")
    digest.update(chunk_sums(block))
    return int.from_bytes(digest.digest(), "big")


class WeightsDigest:
    """One rank's part of the sum. threads: of this rank, to hash with at most."""

    def __init__(self, tensors: Mapping[str, Tensor], rank: int, size: int, threads: int = 1) -> None:
        """rank: of the `size` ranks of its stage."""
        self._tensors = tensors
        self._rank, self._size = rank, size
        self._names: set[str] = set()
        self._files: dict[Path, mmap.mmap] = {}
        self._blocks: list[Future[int]] = []
        count = max(1, min(_MOST_THREADS, threads))
        self._pool = ThreadPoolExecutor(count, "weights-digest", initializer=_give_way)

    def add(self, name: str, alone: bool = False) -> None:
        """The rank has read what it needs of this tensor; a second time changes nothing. alone: no other rank of the
        stage has."""
        if name in self._names:
            return
        self._names.add(name)
        tensor = self._tensors[name]
        count = -(-(tensor.end - tensor.begin) // BLOCK_BYTES)
        for index in range(count) if alone else own_blocks(name, count, self._rank, self._size):
            self._blocks.append(self._pool.submit(hash_block, tensor, self._mapped(tensor.file), index))

    def result(self) -> int:
        """The sum over the rank's blocks, once all are hashed; nothing can be added any more. Raises ModelError."""
        try:
            return sum(block.result() for block in self._blocks) % MODULUS
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._files.clear()

    def _mapped(self, path: Path) -> mmap.mmap:
        if path not in self._files:
            with open(path, "rb") as file:
                self._files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._files[path]


def _give_way() -> None:
    """On Linux a priority is a thread's."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
