"""How long a step takes, learned from those that ran, and how much prefill a step may carry while others decode.

    seconds = w . (1, tokens, reads, attended)

tokens: positions computed. reads: KV positions that decode rows read. attended: for prefill rows, sum of
count x (start + count / 2). The weights are fitted by recursive least squares with forgetting, kept at or above zero,
and begin at a slow machine's values, each as uncertain as it is large: a few steps overrule them.
"""

import math
from dataclasses import dataclass

_PRIOR = (0.02, 2e-3, 1e-6, 1e-6)  # seconds per step, token, position read, pair attended
_FORGET = 0.995  # about 200 steps of memory
_NOISE = 0.05  # of a measurement, relative, plus a millisecond
_SURPRISE = 3.0  # a measurement counts for at most so many times the prediction: a pause is not a slow device


@dataclass(frozen=True, slots=True)
class Work:
    """What a step has to do, as far as its duration depends on it."""

    tokens: int = 0
    reads: int = 0
    attended: float = 0.0

    def with_chunk(self, start: int, count: int) -> "Work":
        return Work(self.tokens + count, self.reads, self.attended + count * (start + count / 2))


class Pace:
    """target_s: inter-token latency that prefill must leave to those who decode; stretch: where decoding alone comes
    near the target or misses it, prefill may still make a step this many times as long, so that it never starves.
    least: tokens of prefill that a step may always carry."""

    def __init__(self, target_s: float = 0.05, stretch: float = 2.0, least: int = 16) -> None:
        self._target_s = target_s
        self._stretch = stretch
        self._least = least
        self._weights = list(_PRIOR)
        self._spread = [[_PRIOR[i] ** 2 if i == j else 0.0 for j in range(4)] for i in range(4)]

    def seconds(self, work: Work) -> float:
        """Predicted duration of a step."""
        base, token, read, pair = self._weights
        return base + token * work.tokens + read * work.reads + pair * work.attended

    def room(self, decode: Work, work: Work, start: int) -> int:
        """How many prefill tokens from position `start` may join `work`, a step in which `decode` is the decoding."""
        allowed = max(self._target_s, self._stretch * self.seconds(decode))
        least = self._least if work is decode else 0
        left = allowed - self.seconds(work)
        if left <= 0:
            return least
        # token x c + pair x (start x c + c^2 / 2) = left
        _, token, _, pair = self._weights
        slope = token + pair * start
        root = slope + math.sqrt(slope * slope + 2 * pair * left)
        return max(least, int(2 * left / root)) if root > 0 else 1 << 30

    def observe(self, work: Work, seconds: float) -> None:
        """A step with this work took this long."""
        x = (1.0, float(work.tokens), float(work.reads), work.attended)
        predicted = self.seconds(work)
        error = min(seconds, _SURPRISE * predicted) - predicted
        gain = [sum(row[j] * x[j] for j in range(4)) for row in self._spread]
        noise = 1e-3 + _NOISE * seconds
        scale = noise * noise + max(0.0, sum(gain[i] * x[i] for i in range(4)))
        for i in range(4):
            self._weights[i] = max(0.0, self._weights[i] + gain[i] * error / scale)
            for j in range(4):
                self._spread[i][j] = min(
                    (self._spread[i][j] - gain[i] * gain[j] / scale) / _FORGET, _PRIOR[i] * _PRIOR[j]
                )
