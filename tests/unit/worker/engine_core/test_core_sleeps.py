"""The core's loop when an order to sleep comes amid requests: what the rank hears of it, and when."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.models.checkpoints import EOS, random_checkpoint
from support.patience import PATIENCE_S

from octavo.router.constrained.grammars import grammar
from octavo.router.openai_api.structured import Structured
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.config import Config
from octavo.worker.engine_core import core as loop
from octavo.worker.engine_core.core import Core
from octavo.worker.ipc.process_context import ProcessContext, create_shared
from octavo.worker.ipc.ring import RingReader, RingWriter
from octavo.worker.ipc.shared_board import CORE, Board, ProcessSlot
from octavo.worker.messages import rank_info
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.memory import GROUP, MemoryState, Sleep, Wake
from octavo.worker.messages.output import Cancel, Outputs
from octavo.worker.messages.rank_info import RankCapabilities
from octavo.worker.messages.request import FEATURES, NewRequest
from octavo.worker.messages.step import Masks, Step, StepResult

SAID = RankCapabilities(100, 16, 512, 1024, 512, 8, [], "cpu", list(FEATURES))
LARGE = 140_000_000_000  # bytes of weights
GRAMMAR = grammar(Structured("regex", "a{9}", "guided_regex"))
DROP = Sleep(keep_kv=False)


def request(key: int, bound: bool = False) -> NewRequest:
    return NewRequest(key, (1, 2), SamplingParams(), 3, frozenset({EOS}), grammar=GRAMMAR if bound else "")


class Heard(NamedTuple):
    rank: list[Any]
    serve: list[Any]


class Ends:
    """A core of one rank; the test is serve and the rank."""

    def __init__(self, folder: Path) -> None:
        shared = create_shared(1)
        config = Config("m", "m", *["unix:/absent"] * 5)
        self.board = Board(shared.board)
        self._inbox, self._results = RingWriter(shared.inbox), RingWriter(shared.results[0])
        self._outbox, self._steps = RingReader(shared.outbox), RingReader(shared.steps[0])
        self.heard = Heard([], [])
        self.core = Core(ProcessContext(config, str(folder), "", "i", shared, "unix:/absent", -1, -1, 0))
        self._results.push(rank_info.dump(SAID))
        self.core.start()
        self.core.turn()
        assert rank_info.load(self._outbox.pop() or b"") is not None

    def ask(self, *messages: Any) -> None:
        """serve says all this in one burst."""
        for message in messages:
            self._inbox.push(encode(message))

    def answer(self, message: Any) -> None:
        """The rank says this."""
        self._results.push(encode(message))

    def result(self, step: Step) -> None:
        """Of each sampled row an "a"."""
        self.answer(StepResult(step.number, len(step.sample.rows) * (ord("a"),)))

    def turn(self) -> None:
        self.core.turn()
        for reader, heard in ((self._steps, self.heard.rank), (self._outbox, self.heard.serve)):
            while (record := reader.pop()) is not None:
                heard.append(decode(record))

    def next(self, *kinds: type) -> Any:
        """The next that the rank hears, empty steps aside: it is of one of these kinds."""
        end = time.monotonic() + PATIENCE_S
        while True:
            while not self.heard.rank and time.monotonic() < end:
                self.turn()
            message = self.heard.rank.pop(0)
            if isinstance(message, Step) and not message.forward.slots:
                self.result(message)
                continue
            assert isinstance(message, kinds), message
            return message


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    inspect = loop.inspect
    monkeypatch.setattr(loop, "inspect", lambda folder: replace(inspect(folder), size_bytes=LARGE))
    yield Ends(random_checkpoint(tmp_path / "random"))


@pytest.mark.parametrize("bound", [False, True], ids=["plain", "with-a-grammar"])
def test_a_request_that_came_before_the_order_is_run_to_its_end(ends: Ends, bound: bool) -> None:
    ends.ask(request(1, bound), DROP)
    while not isinstance(step := ends.next(Step, Masks, Sleep), Sleep):
        if isinstance(step, Step):
            ends.result(step)
    tokens = sum(one.tokens for one in ends.heard.serve if isinstance(one, Outputs))
    assert tokens == 3
    ends.answer(MemoryState(0, True, 100))
    ends.turn()
    assert MemoryState(GROUP, True, 100) in ends.heard.serve


def test_masks_that_the_rank_waits_for_are_sent_also_when_an_order_waits(ends: Ends) -> None:
    ends.ask(request(1, bound=True))
    first = ends.next(Step)
    assert ends.next(Masks).number == first.number
    second = ends.next(Step)
    ends.turn()
    assert not ends.heard.rank, "masks of the second wait for the result of the first"
    ends.ask(Cancel(1), DROP)
    assert ends.next(Masks).number == second.number
    ends.result(first)
    ends.result(second)
    assert ends.next(Sleep) == DROP


def test_ranks_have_the_longer_for_an_order_the_larger_the_model_is(ends: Ends) -> None:
    for order, asleep in ((DROP, True), (Wake(), False)):
        begin = time.monotonic_ns()
        ends.ask(order)
        assert ends.next(type(order)) == order
        allowed_s = (ends.board.read(CORE, ProcessSlot.DEADLINE) - begin) / 1e9
        assert 600 < allowed_s < 1000 + PATIENCE_S, "each rank of 140 GB alone takes a minute on a fast machine"
        ends.answer(MemoryState(0, asleep, 100))
        ends.turn()
