"""What a step changes on the device before its pass."""

from collections.abc import Sequence

import torch

from octavo.kernels.cuda.step_layout import changes
from octavo.kernels.cuda.step_layout.prepare import DeviceState, apply_changes
from octavo.worker.messages.step import Admit, Forward
from octavo.worker.runner.cuda.buffers import upload_words


def update_state(forward: Forward, state: DeviceState, pad: int) -> None:
    """Requests that take slots, and blocks of their tables. pad: the block that tables are filled with."""
    admits = list(map(_admit, forward.admits))
    words = changes.pack_changes(admits, forward.blocks, state.tables.shape[1], pad)
    apply_changes(upload_words(words, state.tables.device), state)


def _admit(admit: Admit) -> changes.SlotInit:
    how = admit.sampling
    return changes.SlotInit(admit.slot, admit.tokens, how.temperature, how.top_k, how.top_p, how.min_p, how.seed)


def zero(pools: Sequence[torch.Tensor], blocks: tuple[int, ...]) -> None:
    """Zero what failed requests wrote: the next owner of a block masks what it has not written, and a masked NaN is
    NaN."""
    if blocks:
        places = torch.tensor(blocks, device=pools[0].device)
        for pool in pools:
            pool[:, :, places] = 0
