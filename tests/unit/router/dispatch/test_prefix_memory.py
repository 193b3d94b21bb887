"""A prefix that a group was sent is known until newer ones fill the group's cache."""

from array import array

from octavo.router.dispatch.rules.prefix_memory import AFFINITY_BLOCK, PrefixMemory, affinity_hashes


def prompt(*ids: int) -> bytes:
    return array("I", ids).tobytes()


def test_a_prompt_with_the_same_beginning_is_known_as_far_as_it_is_the_same() -> None:
    memory = PrefixMemory(100_000)
    memory.remember(affinity_hashes(prompt(*range(4 * AFFINITY_BLOCK))))
    other = prompt(*range(2 * AFFINITY_BLOCK), *([7] * 2 * AFFINITY_BLOCK))
    assert memory.cached_tokens(affinity_hashes(other)) == 2 * AFFINITY_BLOCK
    assert memory.cached_tokens(affinity_hashes(prompt(*range(1, 500)))) == 0


def test_the_memory_is_bounded_and_forgets_the_tail_of_the_oldest_first() -> None:
    memory = PrefixMemory(4 * AFFINITY_BLOCK)
    old = affinity_hashes(prompt(*([1] * 3 * AFFINITY_BLOCK)))
    new = affinity_hashes(prompt(*([2] * 2 * AFFINITY_BLOCK)))
    memory.remember(old)
    memory.remember(new)
    assert memory.cached_tokens(new) == 2 * AFFINITY_BLOCK
    assert memory.cached_tokens(old) == 2 * AFFINITY_BLOCK
