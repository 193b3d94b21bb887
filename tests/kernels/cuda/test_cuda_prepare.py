"""On the device, changes are applied and steps laid out as the plain loops here do it; padding is filled in full."""

import random
from dataclasses import fields

import numpy as np
import pytest
import torch

from octavo.kernels.cuda.step_layout.prepare import (
    DeviceState,
    Rows,
    SlotInit,
    StepBuffers,
    apply_changes,
    new_state,
    pack_changes,
    pack_step,
    packed_words,
    prepare_step,
    step_buffers,
)

pytestmark = pytest.mark.gpu

BLOCK = 16


def device(words: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(words).cuda()


def filled(slots: int, context: int) -> DeviceState:
    """A state of random content."""
    state = new_state(slots, context, -(-context // BLOCK), 1 << 20, "cuda")
    state.tokens.random_(0, 1 << 30)
    state.tables.random_(0, 1 << 20)
    return state


def values(state: DeviceState) -> dict[str, torch.Tensor]:
    return {field.name: getattr(state, field.name).cpu() for field in fields(state)}


@pytest.mark.parametrize("longest", [3, 700, 5000])
@pytest.mark.parametrize("slots", [1, 7, 256])
@pytest.mark.parametrize("pinned", [False, True])
def test_changes_are_applied_in_order(slots: int, longest: int, pinned: bool) -> None:
    draw = random.Random(slots * longest)
    state = filled(slots, 5000)
    wanted, width = values(state), state.tables.shape[1]
    admits, appends = [], []
    for slot in draw.sample(range(slots), (slots + 1) // 2):
        tokens = [draw.randrange(1 << 30) for _ in range(draw.randint(0, longest))]
        admits.append(
            SlotInit(
                slot, tokens, draw.random(), draw.randrange(99), draw.random(), draw.random(), draw.getrandbits(64)
            )
        )
    for slot in range(0, slots, 2):
        first = draw.randrange(width)
        appends.append((slot, first, [draw.randrange(1 << 20) for _ in range(draw.randint(1, width - first))]))
    for admit in admits:
        wanted["tokens"][admit.slot, : len(admit.tokens)] = torch.tensor(admit.tokens, dtype=torch.int32)
        wanted["tables"][admit.slot] = 1 << 20
        for name in ("temperature", "top_k", "top_p", "min_p"):
            wanted[name][admit.slot] = getattr(admit, name)
        wanted["seeds"][admit.slot] = admit.seed - (1 << 64) * (admit.seed >> 63)
    for slot, first, blocks in appends:
        wanted["tables"][slot, first : first + len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
    packed = torch.from_numpy(pack_changes(admits, appends, width, 1 << 20))
    apply_changes(packed.pin_memory() if pinned else packed.cuda(), state)
    torch.cuda.synchronize()
    for name, value in values(state).items():
        assert torch.equal(value, wanted[name]), name


def test_a_longer_buffer_may_hold_the_changes_and_no_changes_do_nothing() -> None:
    state = filled(3, 100)
    wanted = values(state)
    packed = pack_changes((), (), state.tables.shape[1], 0)
    apply_changes(device(np.concatenate((packed, np.full(100_000, 7, np.int32)))), state)
    assert all(torch.equal(value, wanted[name]) for name, value in values(state).items())


def laid_out(rows: Rows, state: DeviceState, sizes: tuple[int, int, int]) -> dict[str, list[int]]:
    """What prepare_step shall fill, by plain loops. sizes: rows, samples, tokens of the bucket."""
    tokens, tables, pad = state.tokens.cpu(), state.tables.cpu(), state.pad_slot
    out: dict[str, list[int]] = {name: [] for name in ("ids", "positions", "places", "begins")}
    for slot, start, count in zip(rows.slots, rows.starts, rows.counts, strict=True):
        out["begins"].append(len(out["ids"]))
        positions = torch.arange(start, start + count)
        out["ids"] += tokens[slot, positions].tolist()
        out["positions"] += positions.tolist()
        out["places"] += (tables[slot, positions // BLOCK] * BLOCK + positions % BLOCK).tolist()
    ends = [start + count for start, count in zip(rows.starts, rows.counts, strict=True)]
    leading = next((row for row, count in enumerate(rows.counts) if count > 1), len(rows.counts))
    out["header"] = [len(rows.slots), leading, len(out["ids"]), len(rows.sampled), *[0] * 12]
    out |= {"row_slots": list(rows.slots), "starts": list(rows.starts), "counts": list(rows.counts), "lengths": ends}
    out["sample_tokens"] = [out["begins"][row] + rows.counts[row] - 1 for row in rows.sampled]
    out["sample_slots"] = [rows.slots[row] for row in rows.sampled]
    out["sample_ends"] = [ends[row] for row in rows.sampled]
    out["counters"] = list(rows.counters)
    padding = {"places": -1, "row_slots": pad, "sample_slots": pad, "begins": len(out["ids"])}
    long = dict.fromkeys(("ids", "positions", "places"), sizes[2])
    short = dict.fromkeys(("sample_tokens", "sample_slots", "sample_ends", "counters"), sizes[1])
    for name, entries in out.items():
        entries += (
            [padding.get(name, 0)] * (long.get(name, short.get(name, sizes[0])) - len(entries))
            if name != "header"
            else []
        )
    return out


def random_rows(draw: random.Random, rows: int, decoding: int, most: int, slots: int) -> Rows:
    counts = [1] * decoding + [draw.randint(2, most) for _ in range(rows - decoding)]
    starts = [draw.randint(0, 4999 - count) for count in counts]
    sampled = sorted(draw.sample(range(rows), draw.randint(0, rows)))
    return Rows(draw.sample(range(slots), rows), starts, counts, sampled, [draw.randrange(9999) for _ in sampled])


@pytest.mark.parametrize(
    ("rows", "decoding", "most"),
    [
        (0, 0, 2),
        (1, 1, 2),
        (1, 0, 300),
        (3, 1, 17),
        (16, 16, 2),
        (17, 15, 4097),
        (255, 255, 2),
        (1000, 996, 3000),
        (1024, 0, 14),
    ],
)
@pytest.mark.parametrize("room", [0, 1, 300])
def test_a_step_is_laid_out(rows: int, decoding: int, most: int, room: int) -> None:
    draw = random.Random(rows + room)
    state = filled(1024, 5000)
    given = random_rows(draw, rows, decoding, most, 1024)
    sizes = (min(1024, max(1, rows + room)), max(1, len(given.sampled) + room), max(1, sum(given.counts) + room))
    step = step_buffers(*sizes, "cuda")
    for field in fields(StepBuffers):
        getattr(step, field.name).fill_(-7)
    into = np.full(packed_words(*sizes[:2]), 1 << 30, np.int32)
    pack_step(given, *sizes[:2], into)
    prepare_step(device(into), state, step)
    wanted = laid_out(given, state, sizes)
    for field in fields(StepBuffers):
        assert getattr(step, field.name).tolist() == wanted[field.name], field.name
