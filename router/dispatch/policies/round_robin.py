"""Routing policy: the groups in turn, whatever their load and their caches. Pure.

The group whose last request is the oldest gets the next one. A group without credit is not among the candidates; once
it has credit again it is the next.
"""

from collections.abc import Sequence

from octavo.router.dispatch.policies.candidate import Candidate


def choose(prompt_tokens: int, candidates: Sequence[Candidate]) -> int:
    """Index of the candidate that has waited longest for a request; the first of several that never got one."""
    return min(range(len(candidates)), key=lambda index: candidates[index].last_sent)
