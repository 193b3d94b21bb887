"""Fixed memory that steps pass through: a copy down before a step, its layout on the device, a copy up after it.

Host memory is pinned and used in turn. There are more of them than the scheduler has steps under way, so that a buffer
is free again before its turn comes; its event is waited for all the same.
"""

from dataclasses import dataclass

import numpy as np
import torch

from octavo.kernels.cuda.step_layout.changes import Words
from octavo.kernels.cuda.step_layout.steps import StepBuffers, packed_words, step_buffers
from octavo.worker.messages.graphs import Graph

_SPARE = 3


@dataclass(slots=True)
class StagingBuffer:
    """down: what the host says; up: ids and failures, [2 S], of a bucket of S. done: everything of the step has
    happened. samples: S of the step."""

    down: torch.Tensor
    up: torch.Tensor
    done: torch.cuda.Event
    samples: int = 0

    @property
    def words(self) -> Words:
        array: Words = self.down.numpy()
        return array

    def fetch(self, drawn: torch.Tensor) -> None:
        """drawn: [2, S], ids and failures of a pass; `drawn` has them once the step is done."""
        self.samples = drawn.shape[1]
        self.up[: drawn.numel()].copy_(drawn.view(-1), non_blocking=True)

    def drawn(self, samples: int) -> Words:
        """[2, samples], of the first ones."""
        whole: Words = self.up[: 2 * self.samples].numpy()
        return whole.reshape(2, self.samples)[:, :samples]


class StagingBuffers:
    """Pinned memory of the steps under way."""

    def __init__(self, rows: int, stages: int = 1) -> None:
        words = packed_words(rows, rows)
        self._staging = [
            StagingBuffer(
                torch.zeros(words, dtype=torch.int32, pin_memory=True),
                torch.zeros(2 * rows, dtype=torch.int32, pin_memory=True),
                torch.cuda.Event(blocking=True),
            )
            for _ in range(stages + _SPARE)
        ]
        self._next = 0

    def take(self) -> StagingBuffer:
        staging = self._staging[self._next]
        self._next = (self._next + 1) % len(self._staging)
        staging.done.synchronize()
        return staging


class StepLayout:
    """The device's side of steps of up to `rows` rows and `tokens` tokens, seen through any smaller bucket.

    packed: what the host said. All buckets share one memory: steps run one after another.
    """

    def __init__(self, rows: int, tokens: int, device: torch.device) -> None:
        self.packed = torch.zeros(packed_words(rows, rows), dtype=torch.int32, device=device)
        self._whole = step_buffers(rows, rows, tokens, device)

    def view(self, graph: Graph) -> StepBuffers:
        """The buffers cut to a bucket."""
        whole = self._whole
        rows, tokens = graph
        return StepBuffers(
            whole.header,
            *(tensor[:tokens] for tensor in (whole.ids, whole.positions, whole.places)),
            *(tensor[:rows] for tensor in (whole.row_slots, whole.starts, whole.counts, whole.begins, whole.lengths)),
            *(tensor[:rows] for tensor in (whole.sample_tokens, whole.sample_slots, whole.sample_ends, whole.counters)),
        )


class _Memory:
    """Memory on the device, as other libraries tell of theirs. size: bytes of a number."""

    def __init__(self, address: int, shape: tuple[int, ...], stride: tuple[int, ...], size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": shape, "typestr": f"<i{size}", "version": 3,
            "strides": tuple(size * each for each in stride),
        }  # fmt: skip


def memory_at(
    address: int, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A tensor that does not own what lies there. dtype: of 2 or 4 bytes."""
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=device)
    number = {2: torch.int16, 4: torch.int32}[dtype.itemsize]  # the interface does not know bfloat16
    memory = _Memory(address, shape, stride, dtype.itemsize)
    return torch.as_tensor(memory, dtype=number, device=device).view(dtype)


def unowned(x: torch.Tensor) -> torch.Tensor:
    """The same memory, which the tensor does not keep: the allocator may use it again when x is gone."""
    return memory_at(x.data_ptr(), tuple(x.shape), x.stride(), x.dtype, x.device)


def upload_words(words: Words, device: torch.device) -> torch.Tensor:
    """Words of a size that varies, through pinned memory of their own: the allocator keeps it until it was read."""
    pinned = torch.empty(len(words), dtype=torch.int32, pin_memory=True)
    np.copyto(pinned.numpy(), words)
    return pinned.to(device, non_blocking=True)


def download_words(words: torch.Tensor) -> torch.Tensor:
    """The same in pinned memory of their own, once the device has come so far."""
    pinned = torch.empty(len(words), dtype=torch.int32, pin_memory=True)
    return pinned.copy_(words, non_blocking=True)
