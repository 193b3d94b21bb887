"""Rounds of random traffic through a runner, each compared with its requests alone. A seed gives the same round."""

import random
from collections.abc import Sequence
from typing import Any

from support.worker.alone import Alone, Compared
from support.worker.random_traffic import Arrival, arrivals
from support.worker.traffic_engine import Setup, TrafficEngine

from octavo.worker.runner.base import DeviceRunner

SPLITS = ((1, 1), (2, 1), (1, 2), (2, 2))  # tensor, pipeline
SHAPE: dict[str, Any] = {"vocab_size": 513, "num_hidden_layers": 2}  # Any: a model's config
REQUESTS = 80


class Rounds:
    def __init__(self, alone: Alone, vocabulary: int) -> None:
        self._alone, self._vocabulary = alone, vocabulary
        self._arrivals: dict[int, Sequence[Arrival]] = {}

    def run(
        self, runner: DeviceRunner, seed: int, tensor: int = 1, pipeline: int = 1, graphs: bool = False
    ) -> Compared:
        """seed: of the traffic, and with the split of how the engine is set up. graphs: whether it captures them."""
        name = f"seed {seed}, tensor {tensor}, pipeline {pipeline}"
        if seed not in self._arrivals:
            self._arrivals[seed] = arrivals(seed, REQUESTS, self._vocabulary, self._alone)
        some, rng = self._arrivals[seed], random.Random(name)
        setup = Setup.drawn(rng, runner, some)
        engine = TrafficEngine(runner, setup, rng, pipeline)
        try:
            if graphs:
                engine.capture()
            answers = engine.serve(some)
        except Exception as error:
            error.add_note(f"{name}: {setup}")
            raise
        found = self._alone.compare(some, answers, frozenset(engine.cancelled))
        load = engine.scheduler.load()
        found.preemptions, found.hits, found.cancelled = load.preemptions, load.cache_hits, len(engine.cancelled)
        found.wrong = [f"{name}: {setup}: {text}" for text in found.wrong]
        return found
