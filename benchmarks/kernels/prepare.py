"""The beginning of a step: changes of usual and of large steps, and the layout of decode and of mixed steps.

PYTHONPATH=src python benchmarks/kernels/prepare.py
"""

import json

import numpy as np
import torch
from replay import replayed_us, row

from octavo.kernels.cuda.step_layout.prepare import (
    Rows,
    SlotInit,
    apply_changes,
    new_state,
    pack_changes,
    pack_step,
    packed_words,
    prepare_step,
    step_buffers,
)

SLOTS, CONTEXT = 1024, 131_072
STEPS = (  # rows of one token, rows of many, tokens of each of these
    (1, 0, 0), (64, 0, 0), (256, 0, 0), (1024, 0, 0), (256, 8, 1024), (0, 2, 8192), (960, 64, 100),
)  # fmt: skip
CHANGES = (  # admits, tokens of each, appends
    (0, 0, 1), (0, 0, 16), (0, 0, 256), (1, 128, 1), (256, 512, 256), (1, 131_072, 1),
)  # fmt: skip


def rows() -> list[dict[str, object]]:
    state = new_state(SLOTS, CONTEXT, CONTEXT // 16, 0, "cuda")
    found = []
    for admits, tokens, appends in CHANGES:
        blocks = range(max(1, tokens // 16))
        words = pack_changes(
            [SlotInit(slot, range(tokens)) for slot in range(admits)],
            [(slot, 0, blocks) for slot in range(appends)],
            CONTEXT // 16,
            0,
        )
        moved = 8 * len(words) + 4 * admits * CONTEXT // 16
        for where, packed in (("", torch.from_numpy(words).cuda()), (" pinned", torch.from_numpy(words).pin_memory())):
            us = replayed_us([lambda packed=packed: apply_changes(packed, state)])  # type: ignore[misc]
            found.append(row(f"changes {admits} x {tokens}, {appends} appends{where}", us, moved))
    for decoding, longer, each in STEPS:
        count = decoding + longer
        counts = [1] * decoding + [each] * longer
        into = np.zeros(packed_words(count, count), np.int32)
        pack_step(Rows(range(count), [700] * count, counts, range(count), [5] * count), count, count, into)
        packed, step = torch.from_numpy(into).cuda(), step_buffers(count, count, sum(counts), "cuda")
        us = replayed_us([lambda packed=packed, step=step: prepare_step(packed, state, step)])  # type: ignore[misc]
        found.append(row(f"step {decoding} + {longer} x {each}", us, 20 * sum(counts) + 64 * count))
    return found


if __name__ == "__main__":
    for line in rows():
        print(json.dumps(line))
