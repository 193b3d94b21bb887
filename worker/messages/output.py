"""The scheduler's output: tokens for requests, and how loaded the group is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from octavo.worker.messages.request import Finish


class Scores(NamedTuple):
    """Log-probabilities, packed as in engine.proto: of an output's ids, and of some more tokens of the prompt."""

    tokens: bytes = b""
    prompt: bytes = b""


class Output(NamedTuple):
    """Tokens of one request from one step.

    ids: no entry when the request ends by a stop id (never shown) or fails. cached: tokens that came from the prefix
    cache, on a request's first output; else 0.
    """

    key: int
    ids: tuple[int, ...]
    finish: Finish = Finish.NOT_FINISHED
    cached: int = 0
    scores: Scores | None = None


@dataclass(frozen=True, slots=True)
class Outputs:
    """What one step gave, a request at most once.

    keys, ids: of requests that got one token more, and nothing else is to be said of them: hundreds in a step, hence
    two columns. others: everything else.
    """

    keys: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    others: tuple[Output, ...] = ()

    def __len__(self) -> int:
        return len(self.keys) + len(self.others)

    def __iter__(self) -> Iterator[Output]:
        yield from map(Output, self.keys, zip(self.ids, strict=True))
        yield from self.others

    @property
    def tokens(self) -> int:
        return len(self.ids) + sum(len(output.ids) for output in self.others)


@dataclass(frozen=True, slots=True)
class Load:
    """How much the scheduler holds now; the last four count since it began.

    prompt_tokens: accepted, not found in the prefix cache, and not yet computed. running: requests that hold a slot of
    the device. free_blocks: blocks with reclaimable cached contents included.
    """

    prompt_tokens: int
    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    cached_blocks: int = 0
    received: int = 0  # submits taken in, refused ones included
    preemptions: int = 0
    cache_queries: int = 0  # tokens looked up in the prefix cache at admission
    cache_hits: int = 0  # tokens that were found there


@dataclass(frozen=True, slots=True)
class Cancel:
    """serve -> core: no client waits for this request any more."""

    key: int


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """core -> serve: a submitted request can never run; field and message say why."""

    key: int
    field: str
    message: str
