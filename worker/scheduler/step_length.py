"""How long a step may become by the prompts that it reads, while requests beside them wait for their next token. PURE.

With a bound between tokens that users have set (engine.tokenInterval), every step may be that long. Without one:

Reading a prompt delays all requests that decode by as long as it takes, sooner or later: cut into chunks it costs as
much, and more. So gentle reading buys smoothness alone, and the requests that wait pay for it. A prompt that
fits a step of moderate length is read at once. A longer one goes in chunks, each of which makes a step some multiple of
what decoding takes, for the streams beside which it has come: the established ones. A request is not established beside
a prompt that has waited for half of the time or more in which it decodes: both came together, or the prompt has waited
long enough, and then it would be unfair, and slow for all, to read it gently. Where more requests wait than are
established, steps grow by that ratio, up to a length from which on nothing is won.

    established = decode for more than twice as long as the prompt has waited
    allowed     = stretch x decoding x max(1, waiting / established), at least short_s or long_s,
                  at most max(longest_s, most_stretch x decoding)
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, replace

from octavo.worker.messages.request import Request

_AGE = 2.0  # how many times as long as a prompt has waited an established stream has decoded
_LEAST_STRETCH = 1.25  # by prefill, where decoding takes all of an interval: so that prompts are not starved


class StreamAges:
    """When requests came, and when they began to decode, in seconds that the device was busy: while it is not,
    nothing decodes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._began: list[float] = []

    def arrived(self, request: Request) -> None:
        request.arrived_s = self.now_s

    def began(self, request: Request) -> None:
        request.began_s = self.now_s
        insort(self._began, request.began_s)

    def ended(self, request: Request) -> None:
        """It decodes no more."""
        del self._began[bisect_left(self._began, request.began_s)]

    def established(self, request: Request) -> int:
        """How many requests are established beside this one, as above."""
        waited = self.now_s - request.arrived_s
        return bisect_left(self._began, self.now_s - _AGE * waited)


@dataclass(frozen=True, slots=True)
class StepLength:
    """interval_s: what a user has set. short_s, long_s: what a step may always take beside a prompt that is short, or
    long. longest_s: a longer step reads no faster, unless decoding takes a good part of it: then most_stretch x
    decoding is the bound. stretch: how many times as long as decoding a step with prefill may take."""

    short_s: float = 0.05
    long_s: float = 0.05
    longest_s: float = 0.25
    stretch: float = 1.9
    interval_s: float | None = None
    most_stretch: float = 20.0

    def allowed_s(self, decoding_s: float, long: bool, waiting: int, established: int) -> float:
        """decoding_s: what the step takes without prompts. waiting: requests without a first token."""
        if self.interval_s is not None:
            return max(self.interval_s, _LEAST_STRETCH * decoding_s)
        longest = max(self.longest_s, self.most_stretch * decoding_s)
        if not established:
            return longest
        crowd = max(1.0, waiting / established)
        return max(self.long_s if long else self.short_s, min(longest, self.stretch * crowd * decoding_s))

    @property
    def at_once_s(self) -> float:
        """A prompt that takes longer than that is long."""
        return self.short_s if self.interval_s is None else self.interval_s


def step_length_of(device: str, stages: int = 1, interval_s: float | None = None) -> StepLength:
    """As a device wants it: on a GPU decoding takes milliseconds, which a long prompt must not multiply. Of a pipeline
    each step may take its share: a request that decodes has a row in one of as many."""
    base = StepLength(long_s=0.005) if device == "cuda" else StepLength()
    return replace(
        base,
        short_s=base.short_s / stages,
        long_s=base.long_s / stages,
        longest_s=base.longest_s / stages,
        interval_s=None if interval_s is None else interval_s / stages,
    )
