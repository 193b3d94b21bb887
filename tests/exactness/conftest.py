"""Each model is loaded and asked once: by transformers for the right answers, by us for all tests.

What transformers said is kept in pytest's cache, by model and versions: it takes longer than all the tests.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from support.checkpoints import random_checkpoint
from support.oracle import Oracle
from support.subject import TOKENS, Subject, make_subject

from octavo import bundled
from octavo.worker.models.checkpoint import inspect


@pytest.fixture(scope="session", params=["smollm2", "random"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    if request.param == "smollm2":
        folder = bundled.ensure("smollm2-135m-instruct")
    else:
        folder = random_checkpoint(tmp_path_factory.mktemp("model"), seed=1)
    return make_subject(folder, remembering(request.config, folder))


def remembering(config: pytest.Config, folder: Path) -> Callable[[Oracle, list[list[int]]], list[list[int]]]:
    def greedy(oracle: Oracle, prompts: list[list[int]]) -> list[list[int]]:
        asked = repr((inspect(folder).fingerprint, transformers.__version__, torch.__version__, TOKENS, prompts))
        key = f"octavo/greedy/{hashlib.blake2b(asked.encode(), digest_size=16).hexdigest()}"
        assert config.cache is not None
        answers: list[list[int]] | None = config.cache.get(key, None)
        if answers is None:
            answers = oracle.greedy(prompts, TOKENS)
            config.cache.set(key, answers)
        return answers

    return greedy
