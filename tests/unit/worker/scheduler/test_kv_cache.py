"""Blocks are counted, shared, and lose their contents in the order in which they fell out of use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import NewRequest, Request
from octavo.worker.scheduler.kv_cache.blocks import Blocks
from octavo.worker.scheduler.kv_cache.cache import Cache
from octavo.worker.scheduler.kv_cache.prefix import Prefix


def pool(total: int) -> tuple[Blocks, Prefix]:
    prefix = Prefix()
    return Blocks(total, prefix), prefix


def name(block: int) -> bytes:
    return bytes([block]) * 16


def filled(total: int) -> tuple[Blocks, Prefix]:
    """Every block taken, named after itself, and given back in the order of its number."""
    blocks, prefix = pool(total)
    for block in sorted(blocks.take() for _ in range(total)):
        prefix.add(name(block), block)
    blocks.release(range(total))
    return blocks, prefix


def test_the_longest_unused_contents_go_first() -> None:
    blocks, _ = filled(4)
    assert [blocks.take() for _ in range(4)] == [0, 1, 2, 3]


def test_a_block_in_use_again_is_the_last_to_go() -> None:
    blocks, _ = filled(4)
    blocks.share([0])
    blocks.release([0])
    assert [blocks.take() for _ in range(4)] == [1, 2, 3, 0]


def test_blank_blocks_are_taken_before_cached_ones() -> None:
    blocks, prefix = filled(3)
    blocks.poison([name(1)])
    assert blocks.take() == 1
    assert prefix.match([name(0)]) == [0]


def test_contents_are_forgotten_only_when_their_block_is_taken() -> None:
    blocks, prefix = filled(2)
    assert prefix.match([name(0), name(1)]) == [0, 1]
    blocks.take()
    assert prefix.match([name(0), name(1)]) == []
    assert prefix.match([name(1)]) == [1]


def test_blocks_whose_contents_are_lost_are_found_by_no_prefix_and_are_all_free() -> None:
    blocks, prefix = filled(3)
    blocks.forget()
    assert prefix.match([name(0)]) == [] and len(prefix) == 0
    assert (blocks.free, blocks.cached) == (3, 0)
    assert sorted(blocks.take() for _ in range(3)) == [0, 1, 2]


def test_a_run_of_hits_ends_at_the_first_miss() -> None:
    _, prefix = filled(3)
    assert prefix.match([name(0), b"?" * 16, name(2)]) == [0]


def test_a_prompt_loses_its_end_before_its_beginning() -> None:
    cache = Cache(Limits(blocks=4, block_size=4, max_batch_tokens=16, max_requests=8, context_length=64))
    first, other = (
        Request(NewRequest(key, tokens, SamplingParams(), 1), key, len(tokens) + 1, list(tokens))
        for key, tokens in ((1, tuple(range(13))), (2, tuple(range(50, 55))))
    )
    cache.admit(first, [])
    blocks, first.issued = list(first.blocks), 13
    cache.index(first)
    cache.give_back(first)
    assert cache.hits(first) == blocks[:3]
    cache.admit(other, [])
    assert set(other.blocks) == set(blocks[2:]), "the one that was not full, then the last of the full ones"
    assert cache.hits(first) == blocks[:2]


def test_a_shared_block_is_free_after_its_last_user() -> None:
    blocks, _ = filled(2)
    blocks.share([0])
    blocks.share([0])
    blocks.release([0])
    assert (blocks.free, blocks.uses(0)) == (1, 1)
    blocks.release([0])
    assert (blocks.free, blocks.uses(0)) == (2, 0)


def test_the_first_block_with_some_contents_keeps_the_name() -> None:
    blocks, prefix = pool(2)
    first, second = blocks.take(), blocks.take()
    prefix.add(name(7), first)
    prefix.add(name(7), second)
    assert prefix.match([name(7)]) == [first]
    assert second not in prefix


def test_spoilt_contents_are_not_found_though_still_used() -> None:
    blocks, prefix = filled(1)
    blocks.share([0])
    blocks.poison([name(0), b"?" * 16])
    assert prefix.match([name(0)]) == []
    blocks.release([0])
    assert (blocks.free, blocks.cached) == (1, 0)


def test_a_block_released_twice_is_an_error() -> None:
    blocks, _ = pool(1)
    block = blocks.take()
    blocks.release([block])
    with pytest.raises(AssertionError, match="block 0 was released more often than taken"):
        blocks.release([block])


@given(st.lists(st.tuples(st.sampled_from("take share release name".split()), st.integers(0, 7)), max_size=60))
def test_free_and_used_blocks_always_make_the_whole(acts: list[tuple[str, int]]) -> None:
    blocks, prefix = pool(8)
    held: list[int] = []
    for act, which in acts:
        if act == "take" and blocks.free:
            held.append(blocks.take())
        elif act == "share" and (found := prefix.match([name(which)])):
            blocks.share(found)
            held += found
        elif act == "release" and held:
            blocks.release([held.pop(which % len(held))])
        elif act == "name" and held:
            prefix.add(name(which), held[which % len(held)])
        assert blocks.free + len(set(held)) == blocks.total
        assert all(blocks.uses(block) == held.count(block) for block in range(8))
