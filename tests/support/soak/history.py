"""What happened to each request, as its client saw it."""

from dataclasses import dataclass, field
from typing import Any

from support.soak.asks import Ask

DONE = "[DONE]"
ERROR = "error"


@dataclass(slots=True)
class Part:
    """What came of one choice."""

    text: str = ""
    finish: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Received:
    """An answer as far as it came. status 0: none came. endings: DONE or ERROR for each event of a stream that ends it.

    broken: how the connection ended, where HTTP has no such end. malformed: what no answer may look like. left: the
    client went away. given_up: the client waited no longer.
    """

    status: int = 0
    parts: dict[int, Part] = field(default_factory=dict)
    usage: list[dict[str, Any]] = field(default_factory=list)  # Any: JSON
    endings: list[str] = field(default_factory=list)
    code: str | None = None
    message: str = ""
    broken: str = ""
    malformed: list[str] = field(default_factory=list)
    left: bool = False
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. Times are seconds since the soak began; calm_s: how long it took by a clock that stands still while
    the machine is too busy (support.patience); lag_s: how long the client itself was held up meanwhile."""

    number: int
    ask: Ask
    received: Received
    begun_s: float
    ended_s: float
    calm_s: float = 0.0
    lag_s: float = 0.0

    @property
    def took_s(self) -> float:
        return self.ended_s - self.begun_s

    @property
    def whole(self) -> bool:
        """Answered to its end, without an error."""
        got = self.received
        ended = got.endings == [DONE] if self.ask.stream else not got.broken
        return got.status == 200 and got.code is None and ended and not got.left and not got.given_up

    @property
    def outcome(self) -> str:
        """In a few words that can be counted."""
        got = self.received
        if got.given_up:
            return "never ended"
        if got.left:
            return "left by its client"
        if got.broken:
            return f"broken: {got.broken.split(':')[0]}"
        if got.status == 200:
            return "200" if self.whole else f"200, then {got.code or 'nothing'}"
        return f"{got.status} {got.code}"
