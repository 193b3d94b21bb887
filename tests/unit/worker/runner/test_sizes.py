"""Requests that run at once, and tokens of a step: each running request takes one of every step of its micro-batch."""

from pathlib import Path

import pytest

from octavo.worker.errors import ConfigError
from octavo.worker.runner.base import RunnerConfig
from octavo.worker.topology import Layout, RankPosition


def _config(pipeline: int = 1, **sizes: int) -> RunnerConfig:
    return RunnerConfig(Path("m"), position=RankPosition(Layout(1, pipeline, 1)), **sizes)  # type: ignore[arg-type]


def test_a_size_that_is_not_given_is_the_devices_and_fits_the_given_ones() -> None:
    assert _config().sizes(64, 512) == (64, 512)
    assert _config(max_batch_tokens=32).sizes(64, 512) == (32, 32)
    assert _config(2, max_batch_tokens=32).sizes(64, 512) == (64, 32)


def test_more_requests_than_the_steps_of_a_pipeline_hold_are_refused_by_name() -> None:
    assert _config(2, max_requests=1024).sizes(64, 512) == (1024, 512)
    with pytest.raises(ConfigError, match=r"maxRequests \(--max-requests\): 1025 is more than .* 2 x .* 512"):
        _config(2, max_requests=1025).sizes(64, 512)
    with pytest.raises(ConfigError, match="lower it, or raise maxBatchTokens"):
        _config(max_requests=17, max_batch_tokens=16).sizes(64, 512)
