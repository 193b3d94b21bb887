"""What failed requests leave in the KV cache is neither found nor inherited."""

import pytest

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.limits import Limits
from octavo.worker.messages.request import NewRequest, Request
from octavo.worker.scheduler.kv_cache.kv_quarantine import QuarantiningCache

LIMITS = Limits(blocks=8, block_size=4, max_batch_tokens=16, max_requests=8, context_length=64)


def admitted(cache: QuarantiningCache, first: int) -> Request:
    """With 9 tokens, so with three blocks, of which two will be full."""
    prompt = tuple(range(first, first + 9))
    request = Request(NewRequest(first, prompt, SamplingParams(), 4), first, 13, list(prompt))
    cache.admit(request, cache.hits(request))
    return request


@pytest.mark.parametrize("indexed", ["before", "after", "before it left"])
def test_a_block_taken_before_the_failure_was_known_is_zeroed_after_its_use_and_not_found(indexed: str) -> None:
    cache = QuarantiningCache(LIMITS)
    failing = admitted(cache, 100)
    cache.leave(failing)
    heir = admitted(cache, 200)
    taken = list(heir.blocks)
    assert set(taken) == set(cache._given[failing])
    heir.issued = 9 if indexed == "before" else 0
    cache.index(heir)
    if indexed == "before it left":
        heir.issued = 9
        cache.leave(heir)
    cache.failed(failing, [heir])
    if indexed != "before it left":
        assert cache.due() == ()
        heir.issued = 9
        cache.index(heir)
        cache.leave(heir)
    cache.settled(heir)
    assert cache.due() == tuple(sorted(taken))
    assert cache.hits(admitted(cache, 200)) == []


def test_a_failure_that_is_reported_again_zeroes_nothing_that_others_have_got_since() -> None:
    cache = QuarantiningCache(LIMITS)
    failing = admitted(cache, 100)
    cache.leave(failing, failed=True)
    cache.failed(failing, [])
    assert len(cache.due()) == 3
    heir = admitted(cache, 200)
    cache.failed(failing, [heir])
    cache.leave(heir)
    assert cache.due() == ()


def test_an_isolated_request_finds_nothing_and_has_all_its_blocks_zeroed() -> None:
    cache = QuarantiningCache(LIMITS)
    first = admitted(cache, 100)
    first.issued = 9
    cache.leave(first)
    cache.settled(first)
    cache.isolate(first)
    assert cache.hits(first) == []
    cache.admit(first, [])
    grown = cache.grow(first)
    assert cache.due() == tuple(sorted(first.blocks)) and grown in first.blocks


def test_a_block_that_was_zeroed_is_found_again_with_what_its_next_owner_computes() -> None:
    cache = QuarantiningCache(LIMITS)
    failing = admitted(cache, 100)
    cache.leave(failing)
    heir = admitted(cache, 200)
    taken = list(heir.blocks)
    cache.failed(failing, [heir])
    cache.leave(heir)
    cache.settled(heir)
    assert cache.due() == tuple(sorted(taken))
    owner = admitted(cache, 300)
    blocks, owner.issued = owner.blocks, 9
    assert set(blocks) == set(taken)
    cache.leave(owner)
    cache.settled(owner)
    again = admitted(cache, 300)
    assert again.issued == 8 and again.blocks[:2] == blocks[:2]
