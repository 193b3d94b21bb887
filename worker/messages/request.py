"""One request as the scheduler sees it: counters on one line of tokens.

    tokens   |--- prompt ---|--- sampled ---|
              ^ computed       ^ issued        ^ known
    computed <= issued <= known + (samples still on the device)

`known` tokens have arrived on the host; `issued` counts tokens given to steps, steps in flight included; what was
issued up to the newest returned step is computed. A token that the device has sampled but the host has not yet seen is
issued by position alone: the device holds its id.

    WAITING -> PREFILLING -> DECODING -> ISSUED -> OVER      ISSUED: nothing left to issue, results to come
       ^            |            |
       +-- PREEMPTED <-----------+                           PREEMPTED: blocks gone, results to come
"""

import enum
from dataclasses import dataclass, field

from octavo.shared import sampling_params
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.errors import WorkerError

# Fields of requests that a device may or may not be able to serve.
GRAMMAR = "response_format"
FEATURES = (*sampling_params.FEATURES, GRAMMAR)


class Finish(enum.IntEnum):
    """Why a request ended; the values are proto Finish's."""

    NOT_FINISHED = 0
    STOP = 1
    LENGTH = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class NewRequest:
    """What arrives. key: the core's own number, never reused in one incarnation. prompt: ids.

    generated: ids produced elsewhere already; sampling counters and max_tokens continue after them.
    stop_ids: ids that end the request (EOS ids included unless ignored), not shown.
    hashes: chained block hashes of prompt + generated (octavo.shared.hashing), full blocks only; salt: their key.
    grammar: that binds what it generates, as llguidance has it; empty: none.
    """

    key: int
    prompt: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    generated: tuple[int, ...] = ()
    priority: int = 0
    hashes: tuple[bytes, ...] = ()
    salt: bytes = b""
    grammar: str = ""


class Invalid(WorkerError, ValueError):
    """A request that can never run. field: which of its fields is at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class Phase(enum.Enum):
    WAITING = enum.auto()
    PREFILLING = enum.auto()
    DECODING = enum.auto()
    PREEMPTED = enum.auto()
    ISSUED = enum.auto()
    OVER = enum.auto()


@dataclass(slots=True)
class Scoring:
    """How far the log-probabilities of a prompt are; numbers are positions of its tokens, of which the first has none.

    issued <= end: steps were given so many; returned <= issued: results have come for so many.
    """

    end: int
    issued: int = 1
    returned: int = 1

    @property
    def done(self) -> bool:
        return self.issued >= self.end


@dataclass(slots=True, eq=False)
class Request:
    """A request's state in the scheduler. Only the scheduler and its parts change it."""

    new: NewRequest
    arrival: int
    total: int  # tokens it may ever have: prompt + max_tokens, at most the context
    tokens: list[int]  # known ids: prompt, generated, then sampled ones
    phase: Phase = Phase.WAITING
    issued: int = 0  # kept by the decode batch while it decodes
    admitted: int = 0  # number of its admission; the last admitted is preempted first
    last_step: int = 0  # the newest step that names its slot
    slot: int = -1  # row of the device's request state; -1 while waiting
    blocks: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)  # of the full blocks of `tokens`, as far as computed
    indexed: int = 0  # leading blocks that have been offered to the prefix cache
    expected_hits: int = 0  # tokens found in the prefix cache when it arrived: an estimate, for Load
    cached: int = 0  # tokens taken from the prefix cache at the first admission; 0 once reported
    arrived_s: float = 0.0  # by the scheduler's own clock, which stands while the device is idle
    began_s: float = 0.0  # when it last began to decode
    long: bool = False  # its prefill takes many steps of the requests that decode beside it
    scoring: Scoring | None = None  # None: no log-probabilities of the prompt

    @property
    def known(self) -> int:
        return len(self.tokens)

    @property
    def uncached(self) -> int:
        """Tokens that prefill still has to issue, as far as one can tell."""
        return self.known - max(self.issued, self.expected_hits)
