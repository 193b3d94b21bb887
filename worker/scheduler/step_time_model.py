"""How long a step takes, learned from steps that ran, and how much prefill fits into one of a given length
(step_length.py).

    seconds = w . (1, tokens, beyond, reads, attended)

tokens: positions computed, on a device that pads them with the padding; beyond: tokens after the first 128, beside
whose products a device has time to read the weights. reads: KV positions that decode rows read. attended: for prefill
rows, sum of count x (start + count / 2). The weights begin at a slow machine's values. A measurement multiplies each
weight by a power of measured / predicted that grows with its share of the prediction (exponentiated gradient,
normalised; Kivinen, Warmuth 1997): they stay positive, no unit matters, and a term that hardly took part is hardly
moved.

Steps that only decode and steps with prefill are learned apart: they run in other graphs and other kernels. Beside long
prompts every step carries prefill, which does not tell for how much of it decoding is to blame: one step in 50 does
nothing else, so that what is known of decoding stays true.

What was learned from small steps says little about the first large one. A step more than twice as large as any before
(by the weights of the beginning) gets a longer timeout, and what it took is believed whole.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
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
    """What a step has to do, as far as its duration depends on it. rows: requests with tokens in it."""

    tokens: int = 0
    reads: int = 0
    attended: float = 0.0
    rows: int = 0

    def with_chunk(self, start: int, count: int) -> "Work":
        return Work(self.tokens + count, self.reads, self.attended + count * (start + count / 2), self.rows + 1)


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
    """sizes: tokens to which a step with prefill is padded where it has no more, rising: the tokens of a device's
    graphs, which hold a row for each two of them."""

    def __init__(self, sizes: Sequence[int] = ()) -> None:
        self._sizes = sizes
        self._mixed, self._decode_only = StepTimeWeights(), StepTimeWeights()
        self._largest = 0.0  # of the steps seen
        self._since_decode_only = 0  # steps

    def seconds(self, work: Work) -> float:
        """Predicted duration of a step."""
        if work.attended:
            return self._mixed.seconds(self._inputs(work))
        return self.decoding_s(work)

    def decoding_s(self, decode: Work) -> float:
        """Predicted duration of a step that only decodes."""
        return (self._decode_only if self._decode_only.observed else self._mixed).seconds(self._inputs(decode))

    @property
    def decoding_is_stale(self) -> bool:
        """Whether it is time for a step that only decodes."""
        return self._since_decode_only >= _STALE

    def timeout(self, work: Work) -> float:
        """Seconds that a step which is not stuck may be expected to take."""
        return self.seconds(work) * (_UNSEEN if self._unseen(work) else 1.0)

    def room(self, work: Work, start: int, allowed_s: float) -> int:
        """How many prefill tokens from position `start` on may join `work`, for a step of allowed_s.

        Of each size up to which the step would be padded its products are paid for, whatever it holds.
        """
        token, beyond, pair = self._mixed.of_prefill
        most = 0
        for size in self._sizes[bisect_right(self._sizes, _least_size(work.tokens, work.rows + 1) - 1) :]:
            left = allowed_s - self._mixed.seconds(_inputs(work, size))
            if left <= 0:
                return most
            most = max(most, min(size - work.tokens, _fitting(left, pair * start, pair)))
        left = allowed_s - self._mixed.seconds(_inputs(work, work.tokens))
        if left <= 0:
            return most
        hidden = max(0, _HIDDEN - work.tokens)
        count = _fitting(left, token + pair * start, pair)
        if count > hidden:
            count = _fitting(left + beyond * hidden, token + beyond + pair * start, pair)
        return count if not self._sizes or work.tokens + count > self._sizes[-1] else most

    def observe(self, work: Work, seconds: float) -> None:
        """A step with this work took this long."""
        decodes = work.tokens > 0 and not work.attended
        weights = self._decode_only if decodes else self._mixed
        if self._unseen(work):
            weights.learn(self._inputs(work), seconds, _UNSEEN_SURPRISE, 1.0)
        else:
            weights.learn(self._inputs(work), seconds, _MOST_SURPRISE, _rate(weights.observed))
        self._since_decode_only = 0 if decodes else self._since_decode_only + 1
        self._largest = max(self._largest, _size(work))

    def _inputs(self, work: Work) -> Inputs:
        if not work.attended:
            return _inputs(work, work.tokens)
        place = bisect_left(self._sizes, _least_size(work.tokens, work.rows))
        return _inputs(work, self._sizes[place] if place < len(self._sizes) else work.tokens)

    def _unseen(self, work: Work) -> bool:
        return _size(work) > 2 * self._largest


def _fitting(left: float, slope: float, pair: float) -> int:
    """The greatest c with slope x c + pair x c^2 / 2 <= left."""
    root = slope + math.sqrt(slope * slope + 2 * pair * left)
    return int(2 * left / root) if root > 0 else 1 << 30


def _rate(observed: int) -> float:
    return max(_RATE, 1 / (1 + observed / 4))


def _inputs(work: Work, tokens: int) -> Inputs:
    return 1.0, tokens, max(0, tokens - _HIDDEN), work.reads, work.attended


def _least_size(tokens: int, rows: int) -> int:
    """Tokens that a graph must have which holds so many tokens and rows."""
    return max(tokens, 2 * rows)


def _size(work: Work) -> float:
    """Comparable between steps, whatever was learned."""
    return sum(weight * amount for weight, amount in zip(_PRIOR, _inputs(work, work.tokens), strict=True))
