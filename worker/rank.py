"""A rank: owns one device, loads the model, then runs the steps it is given, in order, and nothing else.

Torch is imported here and below, so that the pod's other processes are up in the meantime.
"""

import gc
import logging
import os
import select
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from octavo.hashing import BLOCK_SIZE
from octavo.proto.v1 import group_pb2
from octavo.worker import hello, process, ring
from octavo.worker.board import RANK, Board, Slot
from octavo.worker.codec import decode, encode
from octavo.worker.hello import Hello
from octavo.worker.process import Fault
from octavo.worker.ring import Reader, Writer
from octavo.worker.step import Step
from octavo.worker.wiring import Wiring

if TYPE_CHECKING:
    from octavo.worker.device import DeviceRunner, Pending

_POLL_MS = 500
_PHASES = {"Loading": group_pb2.LOADING, "Warming": group_pb2.WARMING}
_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")

logger = logging.getLogger(__name__)


def main(wiring: Wiring) -> None:
    """Load, say hello, run steps for ever."""
    _offer_to_the_oom_killer()
    board = Board(wiring.shared.board)
    board.write(RANK, Slot.PHASE, group_pb2.LOADING)
    try:
        runner = _load(wiring, board)
        _loop(wiring, board, runner)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or any(text in str(error).lower() for text in _MEMORY_TEXTS):
            raise Fault("OutOfDeviceMemory", f"{error}; lower kvCacheMemory or raise the memory limit") from error
        raise


def _load(wiring: Wiring, board: Board) -> "DeviceRunner":
    from octavo.worker.device import RunnerConfig
    from octavo.worker.devices import open_runner

    def progress(phase: str, percent: int) -> None:
        board.write(RANK, Slot.PHASE, _PHASES[phase])
        board.write(RANK, Slot.PROGRESS, percent)
        board.beat(RANK)

    config = wiring.config
    return open_runner(
        RunnerConfig(
            model_dir=Path(wiring.model_dir), device=config.device, dtype=config.dtype,
            context_length=config.context_length, max_requests=config.max_requests,
            max_batch_tokens=config.max_batch_tokens, kv_cache_bytes=config.kv_cache_bytes, block_size=BLOCK_SIZE,
        ),
        progress,
    )  # fmt: skip


def _loop(wiring: Wiring, board: Board, runner: "DeviceRunner") -> None:
    steps = Reader(wiring.shared.steps)
    answers = Answers(wiring, board)
    answers.tell(hello.dump(_hello(runner)))
    board.write(RANK, Slot.PROGRESS, 100)
    board.write(RANK, Slot.PHASE, group_pb2.SERVING)
    gc.freeze()
    poll = select.poll()
    poll.register(wiring.shared.steps.data, select.POLLIN)
    while True:
        board.beat(RANK)
        answers.check()
        record = steps.pop()
        if record is None:
            if poll.poll(_POLL_MS):
                ring.clear(wiring.shared.steps.data)
            continue
        step = decode(record)
        assert isinstance(step, Step)
        board.write(RANK, Slot.ISSUED, step.number)
        answers.await_(runner.issue(step))


def _hello(runner: "DeviceRunner") -> Hello:
    return Hello(
        blocks=runner.blocks, block_size=BLOCK_SIZE, vocabulary=runner.vocabulary,
        context_length=runner.context_length, max_batch_tokens=runner.max_batch_tokens,
        max_requests=runner.max_requests, graphs=runner.graphs, device=runner.device,
    )  # fmt: skip


class Answers:
    """Tells the core the results, in the order of the steps.

    A thread of its own waits for the device, so that the next step is issued while this one runs.
    """

    def __init__(self, wiring: Wiring, board: Board) -> None:
        self._board = board
        self._ring = Writer(wiring.shared.results)
        self._pending: SimpleQueue[Pending] = SimpleQueue()
        self._failure: Exception | None = None
        self._wake = wiring.shared.steps.data  # the loop sleeps on it
        Thread(target=self._run, daemon=True, name="answers").start()

    def await_(self, pending: "Pending") -> None:
        self._pending.put(pending)

    def check(self) -> None:
        """Raises what stopped the thread."""
        if self._failure is not None:
            raise self._failure

    def tell(self, record: bytes) -> None:
        if not self._ring.push(record):
            raise Fault("RankFailed", "the core does not take results")

    def _run(self) -> None:
        try:
            while True:
                result = self._pending.get().result()
                self._board.write(RANK, Slot.FINISHED, result.number)
                self.tell(encode(result))
        except Exception as error:
            self._failure = error
            os.eventfd_write(self._wake, 1)


def _offer_to_the_oom_killer() -> None:
    """Be the process that goes when memory runs out: a supervisor that lives can say why."""
    path = Path("/proc/self/oom_score_adj")
    try:
        path.write_text(str(min(1000, int(path.read_text()) + 200)))
    except OSError as error:
        logger.info("oom_score_adj cannot be raised: %s", error)


if __name__ == "__main__":
    process.run("rank", main)
