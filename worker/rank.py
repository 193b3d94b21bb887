"""A rank: owns one device, loads the model, then runs the steps it is given, in order, and nothing else.

Torch is imported here and below, so that the pod's other processes are up in the meantime.
"""

import gc
import logging
import select
from pathlib import Path
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
    from octavo.worker.runner import Runner

_POLL_MS = 500
_PHASES = {"fetching": group_pb2.FETCHING, "loading": group_pb2.LOADING, "warming": group_pb2.WARMING}
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


def _load(wiring: Wiring, board: Board) -> "Runner":
    from octavo.worker.runner import Runner, RunnerConfig

    def progress(phase: str, percent: int) -> None:
        board.write(RANK, Slot.PHASE, _PHASES.get(phase, group_pb2.LOADING))
        board.write(RANK, Slot.PROGRESS, percent)
        board.beat(RANK)

    config = wiring.config
    return Runner(
        RunnerConfig(
            model_dir=Path(wiring.model_dir), dtype=config.dtype, context_length=config.context_length,
            max_requests=config.max_requests, max_batch_tokens=config.max_batch_tokens,
            kv_cache_bytes=config.kv_cache_bytes, block_size=BLOCK_SIZE, threads=None,
        ),
        progress,
    )  # fmt: skip


def _loop(wiring: Wiring, board: Board, runner: "Runner") -> None:
    steps, results = Reader(wiring.shared.steps), Writer(wiring.shared.results)
    results.push(hello.dump(Hello(runner.blocks, BLOCK_SIZE, runner.vocabulary, runner.context_length)))
    board.write(RANK, Slot.PROGRESS, 100)
    board.write(RANK, Slot.PHASE, group_pb2.SERVING)
    gc.freeze()
    poll = select.poll()
    poll.register(wiring.shared.steps.data, select.POLLIN)
    while True:
        board.beat(RANK)
        record = steps.pop()
        if record is None:
            if poll.poll(_POLL_MS):
                ring.clear(wiring.shared.steps.data)
            continue
        step = decode(record)
        assert isinstance(step, Step)
        board.write(RANK, Slot.ISSUED, step.number)
        result = encode(runner.run(step))
        board.write(RANK, Slot.FINISHED, step.number)
        if not results.push(result):
            raise Fault("RankFailed", f"step {step.number}: the core does not take results")


def _offer_to_the_oom_killer() -> None:
    """Be the process that goes when memory runs out: a supervisor that lives can say why."""
    path = Path("/proc/self/oom_score_adj")
    try:
        path.write_text(str(min(1000, int(path.read_text()) + 200)))
    except OSError as error:
        logger.info("oom_score_adj cannot be raised: %s", error)


if __name__ == "__main__":
    process.run("rank", main)
