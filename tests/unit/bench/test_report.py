"""The printed block and the saved object have vLLM's words, order and layout."""

import json
import math

from octavo.bench.arithmetic import report
from octavo.bench.arithmetic.metrics import NAMES, Answer, measure
from octavo.bench.arithmetic.report import Load

ANSWERS = [
    Answer(start_s=0.0, ttft_s=0.1, gaps_s=(0.02, 0.04), latency_s=0.16, prompt_tokens=10, output_tokens=3, text="abc"),
    Answer(start_s=0.5, error="HTTP 503: full"),
]
PLAIN = """\
============ Serving Benchmark Result ============
Successful requests:                     1
Failed requests:                         1
Benchmark duration (s):                  2.00
Total input tokens:                      10
Total generated tokens:                  3
Request throughput (req/s):              0.50
Output token throughput (tok/s):         1.50
Peak output token throughput (tok/s):    3.00
Peak concurrent requests:                1.00
Total token throughput (tok/s):          6.50
---------------Time to First Token----------------
Mean TTFT (ms):                          100.00
Median TTFT (ms):                        100.00
P99 TTFT (ms):                           100.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          30.00
Median TPOT (ms):                        30.00
P99 TPOT (ms):                           30.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           30.00
Median ITL (ms):                         30.00
P99 ITL (ms):                            39.80
=================================================="""


def test_the_block_is_vllms() -> None:
    seen = measure(ANSWERS, 2.0, (99.0,), {})
    assert report.block(seen, Load(math.inf, 1.0, None), NAMES[:3]) == PLAIN


def test_lines_of_what_was_asked_for_appear_where_vllm_has_them() -> None:
    seen = measure(ANSWERS, 2.0, (50.0, 99.9), {"ttft": 200.0})
    lines = report.block(seen, Load(4.5, 1.0, 8), ("e2el",)).splitlines()
    assert lines[3:5] == [
        "Maximum request concurrency:             8",
        "Request rate configured (RPS):           4.50",
    ]
    assert lines[9] == "Request goodput (req/s):                 0.50"
    assert lines[-6:] == [
        "----------------End-to-end Latency----------------",
        "Mean E2EL (ms):                          160.00",
        "Median E2EL (ms):                        160.00",
        "P50 E2EL (ms):                           160.00",
        "P99.9 E2EL (ms):                         160.00",
        "=" * 50,
    ]


def test_the_saved_object_has_vllms_keys_and_is_json() -> None:
    seen = measure(ANSWERS, 2.0, (50.0, 99.9), {})
    figures = report.result(seen, Load(math.inf, math.inf, None), ("ttft", "itl"))
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert set(figures) == {
        *("request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed"),
        *("total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput"),
        *("output_throughput", "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests"),
        *(f"{figure}_{name}_ms" for name in ("ttft", "itl") for figure in ("mean", "median", "std", "p50", "p99.9")),
    }
    assert (figures["request_rate"], figures["request_goodput"]) == ("inf", None)


def test_details_have_one_entry_for_each_request_in_order() -> None:
    seen = report.details(ANSWERS)
    assert {len(values) for values in seen.values()} == {2}
    assert seen["itls"] == [[0.02, 0.04], []] and seen["errors"] == ["", "HTTP 503: full"]
    assert seen["output_lens"] == [3, 0] and seen["generated_texts"] == ["abc", ""]


def test_failures_are_reported_in_one_line_with_the_first_reason() -> None:
    assert report.failures(ANSWERS) == "1 of 2 requests failed; the first: HTTP 503: full"
    assert report.failures(ANSWERS[:1]) == ""


def test_a_client_that_was_as_busy_as_it_can_be_says_so() -> None:
    assert "busy for 95%" in report.busy(9.5, 10.0)
    assert report.busy(5.0, 10.0) == report.busy(0.5, 0.5) == ""
