"""Routing policy: the group that has the prompt in its cache, within a bound on its load. Pure.

    work(g) = prompt tokens pending at g + BETA x requests decoding at g + this request's uncached tokens at g

Among the groups with credit, only groups with work <= BOUND x mean are considered (bounded load: Mirrokni 2018). Of
these, the policy selects the group that has most of the prompt cached; a prompt that no group has cached goes to the
group that least recently took such a prompt, so that prefixes spread.
"""

from collections.abc import Sequence

from octavo.router.dispatch.policies.candidate import Candidate

BETA = 16  # prompt tokens that weigh as much as one request decoding: the order of a step's chunk over its batch
BOUND = 1.25


def choose(prompt_tokens: int, candidates: Sequence[Candidate]) -> int:
    """The index of the best of them; there is at least one."""
    work = [c.pending_tokens + BETA * c.decoding + prompt_tokens - c.cached for c in candidates]
    bound = BOUND * sum(work) / len(work)
    ranks = [
        (-c.cached, 0 if c.cached else c.last_cold, w, index)
        for index, (c, w) in enumerate(zip(candidates, work, strict=True))
        if w <= bound
    ]
    return min(ranks)[-1]
