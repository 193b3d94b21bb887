"""How long a step takes, learned from steps that ran, and how much prefill a step may carry while others decode.

    seconds = w . (1, tokens, beyond, reads, attended)

tokens: positions computed; beyond: tokens after the first 128, beside whose products a device has time to read the
weights. reads: KV positions that decode rows read. attended: for prefill rows, sum of
count x (start + count / 2). The weights begin at a slow machine's values. A measurement multiplies each weight by a
power of measured / predicted that grows with its share of the prediction (exponentiated gradient, normalised; Kivinen,
Warmuth 1997): they stay positive, no unit matters, and a term that hardly took part is hardly moved.

How long prefill may make a step is a compromise between requests that decode, each of which waits for the whole step,
and requests that wait for their first token. A prompt that one step within the target can hold is computed at once:
cut up, it would cost the device more and delay everybody. A longer one goes in small chunks, each some multiple of
what decoding alone takes, so that requests beside it hardly see it; with more waiting than decoding, that grows by
their ratio.

Beside long prompts every step carries prefill. What such steps teach says how long they take, but not for how much of
it decoding is to blame. How long decoding takes alone is learned by itself, of steps that do nothing else; one step in
50 does nothing else, so that this stays true.

What was learned from small steps says little about the first large one. A step more than twice as large as any before
(by the weights of the beginning) gets a longer timeout, and what it took is believed whole.
"""

import math
from dataclasses import dataclass

_PRIOR = (0.02, 1e-3, 1e-3, 2e-7, 1e-6)  # seconds; steps hardly tell what a read costs, so this is a likely one
_HIDDEN = 128  # tokens that a device computes while it reads the weights
_RATE = 0.2  # of the correction, once some steps were seen; the first counts whole
_MOST_SURPRISE, _LEAST_SURPRISE = 1.0, -4.0  # bounds of log(measured / predicted): a pause is not a slow device
_STALE = 50  # steps after which what decoding takes alone is measured again
_UNSEEN = 10.0  # how many times its prediction a step larger than any seen may be expected to take
_UNSEEN_SURPRISE = 5.0

Inputs = tuple[float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Work:
    """What a step has to do, as far as its duration depends on it."""

    tokens: int = 0
    reads: int = 0
    attended: float = 0.0

    def with_chunk(self, start: int, count: int) -> "Work":
        return Work(self.tokens + count, self.reads, self.attended + count * (start + count / 2))


class StepTimeWeights:
    """What was learned of one kind of step."""

    def __init__(self) -> None:
        self._weights = list(_PRIOR)
        self.observed = 0

    def seconds(self, inputs: Inputs) -> float:
        return sum(weight * amount for weight, amount in zip(self._weights, inputs, strict=True))

    @property
    def of_prefill(self) -> tuple[float, float, float]:
        """Seconds a token, what one beyond takes more, and a pair attended."""
        _, token, beyond, _, pair = self._weights
        return token, beyond, pair

    def learn(self, inputs: Inputs, seconds: float, most: float, rate: float) -> None:
        """most: bound of log(measured / predicted) upwards. rate: of the correction."""
        predicted = self.seconds(inputs)
        surprise = min(most, max(_LEAST_SURPRISE, math.log(max(seconds, 1e-6) / predicted)))
        self.observed += 1
        shares = [weight * amount / predicted for weight, amount in zip(self._weights, inputs, strict=True)]
        pull = rate * surprise / sum(share * share for share in shares)
        self._weights = [weight * math.exp(pull * share) for weight, share in zip(self._weights, shares, strict=True)]


class StepTimeModel:
    """target_s: inter-token latency that prefill must leave to decoding requests; stretch: where decoding alone comes
    near the target or misses it, prefill may still make a step this many times as long, so that it never starves.
    long_prompt_s: the target beside a long prompt; None: the same. least: tokens of prefill that a step may always
    carry."""

    def __init__(
        self, target_s: float = 0.05, stretch: float = 2.0, least: int = 16, long_prompt_s: float | None = None
    ) -> None:
        self._target_s = target_s
        self._long_prompt_s = target_s if long_prompt_s is None else long_prompt_s
        self._stretch = stretch
        self._least = least
        self._any, self._decode_only = StepTimeWeights(), StepTimeWeights()
        self._largest = 0.0  # of the steps seen
        self._stale = 0  # steps since one that only decoded

    def seconds(self, work: Work) -> float:
        """Predicted duration of a step."""
        return self._any.seconds(_inputs(work))

    def timeout(self, work: Work) -> float:
        """Seconds that a step which is not stuck may be expected to take."""
        return self.seconds(work) * (_UNSEEN if self._unseen(work) else 1.0)

    def is_long(self, start: int, count: int) -> bool:
        """Whether computing positions start .. start+count-1 takes longer than a step should."""
        return self.seconds(Work().with_chunk(start, count)) > self._target_s

    def room(self, decode: Work, work: Work, start: int, long_prompt: bool = False, crowd: float = 1.0) -> int:
        """How many prefill tokens from position `start` may join `work`, a step in which `decode` is the decoding.

        long_prompt: of such a one. crowd: requests that wait for their first token, for each that decodes.
        """
        if long_prompt and self._stale >= _STALE:
            return 0
        shortest = self._long_prompt_s if long_prompt else self._target_s
        allowed = max(shortest, self._stretch * max(1.0, crowd) * self._decoding(decode))
        least = self._least if work == decode else 0
        left = allowed - self.seconds(work)
        if left <= 0:
            return least
        token, beyond, pair = self._any.of_prefill
        hidden = max(0, _HIDDEN - work.tokens)
        count = _fitting(left, token + pair * start, pair)
        if count > hidden:
            count = _fitting(left + beyond * hidden, token + beyond + pair * start, pair)
        return max(least, count)

    def _decoding(self, decode: Work) -> float:
        """Predicted duration of a step that only decodes."""
        return (self._decode_only if self._decode_only.observed else self._any).seconds(_inputs(decode))

    def observe(self, work: Work, seconds: float) -> None:
        """A step with this work took this long."""
        inputs = _inputs(work)
        if self._unseen(work):
            self._any.learn(inputs, seconds, _UNSEEN_SURPRISE, 1.0)
        else:
            self._any.learn(inputs, seconds, _MOST_SURPRISE, _rate(self._any.observed))
        self._stale += 1
        if work.tokens and not work.attended:
            self._stale = 0
            self._decode_only.learn(inputs, seconds, _MOST_SURPRISE, _rate(self._decode_only.observed))
        self._largest = max(self._largest, _size(work))

    def _unseen(self, work: Work) -> bool:
        return _size(work) > 2 * self._largest


def step_time_model_of(device: str, least: int, stages: int = 1) -> StepTimeModel:
    """As a device wants it: on a GPU decoding takes milliseconds, which a long prompt must not multiply. Of a pipeline
    each step may take its share of the target: a request that decodes has a row in one of as many."""
    target_s, long_prompt_s = 0.05 / stages, 0.005 / stages
    return (
        StepTimeModel(target_s, 1.8, least, long_prompt_s) if device == "cuda" else StepTimeModel(target_s, least=least)
    )


def _fitting(left: float, slope: float, pair: float) -> int:
    """The greatest c with slope x c + pair x c^2 / 2 <= left."""
    root = slope + math.sqrt(slope * slope + 2 * pair * left)
    return int(2 * left / root) if root > 0 else 1 << 30


def _rate(observed: int) -> float:
    return max(_RATE, 1 / (1 + observed / 4))


def _inputs(work: Work) -> Inputs:
    return 1.0, work.tokens, max(0, work.tokens - _HIDDEN), work.reads, work.attended


def _size(work: Work) -> float:
    """Comparable between steps, whatever was learned."""
    return sum(weight * amount for weight, amount in zip(_PRIOR, _inputs(work), strict=True))
