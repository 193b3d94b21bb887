"""A rank: owns one device, loads the model, then runs the steps it is given, in order, and nothing else.

It is forked from the fork server, which has imported what is slow to import.
"""

import gc
import logging
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from octavo.kernels.errors import MissingKernels
from octavo.proto.v1 import group_pb2
from octavo.shared.failure_reasons import FailureReason
from octavo.shared.hashing import BLOCK_SIZE
from octavo.worker.errors import Fault, KernelsMissing
from octavo.worker.ipc import ring
from octavo.worker.ipc.process_context import ProcessContext
from octavo.worker.ipc.ring import RingReader, RingWriter
from octavo.worker.ipc.shared_board import RANK, Board, ProcessSlot
from octavo.worker.messages import rank_info
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.memory import MemoryState, Sleep, Wake
from octavo.worker.messages.rank_info import RankCapabilities
from octavo.worker.messages.step import Masks, Step
from octavo.worker.messages.step_check import InvalidStep, StepCheck
from octavo.worker.rank.memory import RankMemory
from octavo.worker.rank.pod_copies import PodCopies
from octavo.worker.topology import RankPosition

if TYPE_CHECKING:
    from octavo.worker.runner.base import DeviceRunner, Pending

_POLL_MS = 500
_BEAT_S = 0.5
_PHASES = {"Loading": group_pb2.LOADING, "Warming": group_pb2.WARMING}
_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")

logger = logging.getLogger(__name__)


def main(context: ProcessContext) -> None:
    """Load, say hello, run steps for ever."""
    _offer_to_the_oom_killer()
    rank_slot = RankSlot(context)
    rank_slot.write(ProcessSlot.PHASE, group_pb2.LOADING)
    Thread(target=rank_slot.beat, daemon=True, name="beat").start()
    try:
        _loop(context, rank_slot, _load(context, rank_slot))
    except MissingKernels as error:
        raise KernelsMissing(str(error)) from error
    except InvalidStep as error:  # what is in the KV cache cannot be known any more: only a new incarnation is right
        raise Fault(FailureReason.INVALID_STEP, f"{error}; nothing of it was computed") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or any(text in str(error).lower() for text in _MEMORY_TEXTS):
            text = f"{error}; lower kvCacheMemory or raise the memory limit"
            raise Fault(FailureReason.OUT_OF_DEVICE_MEMORY, text) from error
        raise


class RankSlot:
    """This rank's slot of the board."""

    def __init__(self, context: ProcessContext) -> None:
        self._board = Board(context.shared.board)
        self._slot = RANK + context.rank
        self.late: Callable[[], int] = lambda: 0  # how many messages of an earlier incarnation were refused

    def write(self, word: ProcessSlot, value: int) -> None:
        self._board.write(self._slot, word, value)

    def beat(self) -> None:
        """Show for ever that this process is not stopped, whatever its main thread waits for."""
        while True:
            self._board.beat(self._slot)
            self.write(ProcessSlot.LATE, self.late())
            time.sleep(_BEAT_S)


def _load(context: ProcessContext, rank_slot: RankSlot) -> "DeviceRunner":
    from octavo.worker.rank.devices import open_runner
    from octavo.worker.rank.peers import collective_of, links_of
    from octavo.worker.runner.base import RunnerConfig

    def progress(phase: str, percent: int) -> None:
        rank_slot.write(ProcessSlot.PHASE, _PHASES[phase])
        rank_slot.write(ProcessSlot.PROGRESS, percent)

    config, position = context.config, RankPosition(context.config.layout, context.rank)
    collective, links = collective_of(context, position), links_of(context, position)
    if links is not None:
        rank_slot.late = lambda: links.late
    runner = open_runner(
        RunnerConfig(
            model_dir=Path(context.model_dir), device=config.device, dtype=config.dtype,
            context_length=config.context_length, max_requests=config.max_requests,
            max_batch_tokens=config.max_batch_tokens, kv_cache_bytes=config.kv_cache_bytes, block_size=BLOCK_SIZE,
            threads=config.threads, position=position,
        ),
        progress,
        collective,
        links,
    )  # fmt: skip
    rank_slot.write(ProcessSlot.COLLECTIVE, runner.collective)
    rank_slot.write(ProcessSlot.ACTIVATIONS, runner.activations)
    return runner


def _loop(context: ProcessContext, rank_slot: RankSlot, runner: "DeviceRunner") -> None:
    result_sender = ResultSender(context, rank_slot)
    inbox = StepInbox(RingReader(context.ring(context.shared.steps)), result_sender.check)
    result_sender.tell(rank_info.dump(_capabilities(runner)))
    check = StepCheck(
        slots=runner.max_requests, blocks=runner.blocks, block_size=BLOCK_SIZE,
        max_batch_tokens=runner.max_batch_tokens, context_length=runner.context_length,
    )  # fmt: skip
    pod = context.config.layout.ranks_of(context.config.pod_index)
    memory = RankMemory(runner, context.rank, PodCopies(context.shared.board, pod, context.rank))
    rank_slot.write(ProcessSlot.PROGRESS, 100)
    rank_slot.write(ProcessSlot.PHASE, group_pb2.SERVING)
    gc.freeze()
    if context.config.prepare_sleep:
        memory.prepare()
    while True:
        step = inbox.next()
        if isinstance(step, Masks):  # of a step whose rows another stage samples
            continue
        if isinstance(step, Sleep | Wake):
            result_sender.answer(memory.obey(step))
            continue
        check.check(step)
        rank_slot.write(ProcessSlot.ISSUED, step.number)
        result_sender.send(runner.issue(step, inbox.masks))


class StepInbox:
    """What the core says to this rank, in order."""

    def __init__(self, steps: RingReader, check: Callable[[], None]) -> None:
        """check: called now and then while nothing comes; raises what must end the wait."""
        self._steps, self._check = steps, check
        self._poll = select.poll()
        self._poll.register(steps.fds.data, select.POLLIN)

    def next(self) -> Step | Masks | Sleep | Wake:
        while True:
            self._check()
            if (record := self._steps.pop()) is not None:
                message = decode(record)
                assert isinstance(message, Step | Masks | Sleep | Wake)
                return message
            if self._poll.poll(_POLL_MS):
                ring.clear(self._steps.fds.data)

    def masks(self, number: int) -> Masks:
        """The masks of step `number`, which come right after it."""
        masks = self.next()
        if not isinstance(masks, Masks) or masks.number != number:
            raise ValueError(f"step {number} has bound rows, and what follows it is {type(masks).__name__}")
        return masks


def _capabilities(runner: "DeviceRunner") -> RankCapabilities:
    return RankCapabilities(
        blocks=runner.blocks, block_size=BLOCK_SIZE, vocabulary=runner.vocabulary,
        context_length=runner.context_length, max_batch_tokens=runner.max_batch_tokens,
        max_requests=runner.max_requests, graphs=runner.graphs, device=runner.device, features=runner.features,
        path=runner.path, weights=f"{runner.digest.result():x}",
    )  # fmt: skip


class ResultSender:
    """Sends the results to the core, in the order of the steps: one rank of the group does, the others are as far.

    A thread of its own waits for the device, so that the next step is issued while this one runs.
    """

    def __init__(self, context: ProcessContext, rank_slot: RankSlot) -> None:
        self._rank_slot = rank_slot
        self._ring = RingWriter(context.ring(context.shared.results))
        self._sends_results = context.rank == context.config.layout.output_rank
        self._pending: SimpleQueue[Pending | MemoryState] = SimpleQueue()
        self._failure: Exception | None = None
        self._wake = context.ring(context.shared.steps).data  # the loop sleeps on it
        Thread(target=self._run, daemon=True, name="answers").start()

    def send(self, pending: "Pending") -> None:
        self._pending.put(pending)

    def answer(self, state: MemoryState) -> None:
        """To an order; every rank answers."""
        self._pending.put(state)

    def check(self) -> None:
        """Raises what stopped the thread."""
        if self._failure is not None:
            raise self._failure

    def tell(self, record: bytes) -> None:
        if not self._ring.push(record):
            raise Fault(FailureReason.RANK_FAILED, "the core does not take results")

    def _run(self) -> None:
        try:
            while True:
                pending = self._pending.get()
                if isinstance(pending, MemoryState):
                    self.tell(encode(pending))
                    continue
                result = pending.result()
                self._rank_slot.write(ProcessSlot.FINISHED, result.number)
                if self._sends_results:
                    self.tell(encode(result))
        except Exception as error:
            self._failure = error
            os.eventfd_write(self._wake, 1)


def _offer_to_the_oom_killer() -> None:
    """Be the process that goes when memory runs out: a supervisor that survives can say why."""
    path = Path("/proc/self/oom_score_adj")
    try:
        path.write_text(str(min(1000, int(path.read_text()) + 200)))
    except OSError as error:
        logger.info("oom_score_adj cannot be raised: %s", error)
