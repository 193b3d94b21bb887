"""When each request is sent. No clock.

The pauses between requests follow a gamma distribution of mean 1 / rate and of shape `burstiness`:

    burstiness 1      exponential pauses: a Poisson process
    burstiness < 1    more bursty
    burstiness > 1    more even; inf: exactly 1 / rate
"""

import math
from collections.abc import Iterator
from itertools import accumulate
from random import Random


def offsets(count: int, rate: float, burstiness: float, source: Random) -> list[float]:
    """Seconds from the beginning to each of `count` requests, ascending; rate: requests a second, inf: all at 0.

    Stretched so that the last is sent at count / rate exactly: else runs with different seeds would offer loads that
    differ by a percent or two.
    """
    if math.isinf(rate):
        return [0.0] * count
    sent = list(accumulate(_pauses(count, rate, burstiness, source)))
    if not sent or sent[-1] == 0:
        return sent
    factor = count / rate / sent[-1]
    return [at * factor for at in sent]


def _pauses(count: int, rate: float, burstiness: float, source: Random) -> Iterator[float]:
    for _ in range(count):
        yield 1 / rate if math.isinf(burstiness) else source.gammavariate(burstiness, 1 / (rate * burstiness))
