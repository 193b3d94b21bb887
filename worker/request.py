"""One request as the scheduler sees it: three counters on one line of tokens.

    tokens   |--- prompt ---|--- sampled ---|
              ^ computed       ^ issued        ^ known
    computed <= issued <= known + (samples still on the device)

`known` tokens have arrived on the host; `issued` counts tokens given to steps, those under way included; `computed`
counts tokens whose steps have returned. A token that the device has sampled but the host has not yet seen is
issued by position alone: the device holds its id.
"""

import enum
from dataclasses import dataclass, field


class Finish(enum.IntEnum):
    """Why a request ended; the values are those of proto Finish."""

    NOT_FINISHED = 0
    STOP = 1
    LENGTH = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Sampling:
    """temperature 0 is greedy; top_k 0 and top_p 1 are off; the seed drives a counter-based generator."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class NewRequest:
    """What arrives. key: the core's own number, never reused in one incarnation. prompt: ids.

    generated: ids produced elsewhere already; sampling counters and max_tokens continue after them.
    stop_ids: ids that end the request (EOS ids included unless ignored), not shown.
    hashes: chained block hashes of prompt + generated (octavo.hashing), full blocks only.
    """

    key: int
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    generated: tuple[int, ...] = ()
    priority: int = 0
    hashes: tuple[bytes, ...] = ()


@dataclass(slots=True, eq=False)
class Request:
    """A request's state in the scheduler. Only scheduler.py changes it."""

    new: NewRequest
    arrival: int
    tokens: list[int]  # known ids: prompt, generated, then sampled ones
    issued: int = 0
    computed: int = 0
    in_flight: int = 0  # steps under way that name this request
    samples_in_flight: int = 0  # of those, the ones that sample
    slot: int = -1  # row of the device's request state; -1 while waiting
    blocks: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)  # of the full blocks of `tokens`, as far as known
    cached: int = 0  # prompt tokens taken from the prefix cache at the first admission
    finish: Finish = Finish.NOT_FINISHED
    cancelled: bool = False
    preemptions: int = 0

    @property
    def known(self) -> int:
        return len(self.tokens)
