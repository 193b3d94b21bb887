"""What the serving benchmark prints is what scripts that read that of vLLM expect, with the figures of the streams."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from report import Finished, percentile, report

ONE = Finished(prompt_tokens=10, tokens=3, frames_s=[0.1, 0.12, 0.16])
OTHER = Finished(prompt_tokens=20, tokens=1, frames_s=[0.3])

BLOCK = """\
============ Serving Benchmark Result ============
Successful requests:                     2
Failed requests:                         1
Benchmark duration (s):                  2.00
Total input tokens:                      30
Total generated tokens:                  4
Request throughput (req/s):              1.00
Output token throughput (tok/s):         2.00
Total Token throughput (tok/s):          17.00
---------------Time to First Token----------------
Mean TTFT (ms):                          200.00
Median TTFT (ms):                        200.00
P99 TTFT (ms):                           298.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          30.00
Median TPOT (ms):                        30.00
P99 TPOT (ms):                           30.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           30.00
Median ITL (ms):                         30.00
P99 ITL (ms):                            39.80
=================================================="""


def test_the_block_has_the_layout_and_the_figures() -> None:
    assert str(report([ONE, OTHER], failed=1, duration_s=2.0)) == BLOCK


def test_answers_of_one_token_have_no_time_between_tokens() -> None:
    found = report([OTHER], failed=0, duration_s=1.0)
    assert found.per_token.mean == found.between_tokens.p99 == 0.0


@pytest.mark.parametrize(("share", "value"), [(0, 1.0), (50, 2.5), (99, 3.97), (100, 4.0)])
def test_a_percentile_lies_between_its_neighbours(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(value)
