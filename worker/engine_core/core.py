"""The engine's loop: requests in -> schedule -> step to the ranks -> result -> update -> outputs to serve.
                  |                          ^                |
            (grammars.py)              masks +----------------+  (constraints.py, for requests that a grammar binds)

Ranks of this pod have a ring each; serve carries the steps of the other pods, and brings what their ranks say.

A process of its own, so that no parsing shares the scheduler's interpreter lock; it waits for nothing but its rings,
and a serve that is slow to read delays no request: what it has not taken is kept here, in order.
"""

import gc
import logging
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from octavo.proto.v1 import group_pb2
from octavo.worker.engine_core.admission import Admission
from octavo.worker.engine_core.grammars import Masker, grammars_of
from octavo.worker.engine_core.group_memory import GroupMemory, order_seconds
from octavo.worker.ipc import process, ring
from octavo.worker.ipc.process_context import ProcessContext
from octavo.worker.ipc.ring import RingReader
from octavo.worker.ipc.ring_sender import RingSender, send_to_all
from octavo.worker.ipc.shared_board import CORE, Board, Gauge, ProcessSlot
from octavo.worker.messages import rank_info
from octavo.worker.messages.codec import decode, encode
from octavo.worker.messages.graphs import GraphBook, mixed_sizes
from octavo.worker.messages.memory import MemoryState, Sleep, Wake
from octavo.worker.messages.output import Cancel, Outputs, RefusedRequest
from octavo.worker.messages.rank_info import RankCapabilities
from octavo.worker.messages.request import Finish, NewRequest
from octavo.worker.messages.step import Step, StepResult
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.scheduler.scheduler import RefusedStep, Scheduler
from octavo.worker.scheduler.step_deadline import StepDeadline
from octavo.worker.scheduler.step_length import step_length_of
from octavo.worker.scheduler.step_time_model import StepTimeModel

_POLL_MS = 250
_IDLE_NS = 1_000_000_000  # an idle group gets an empty step so often
_CAPTURE_EVERY = 8  # steps that serve between two that capture: a capture takes the time of a few

logger = logging.getLogger(__name__)


class Core:
    """The rings and the board around one Scheduler."""

    def __init__(self, context: ProcessContext) -> None:
        shared = context.shared
        self._config = context.config
        self._model_dir = Path(context.model_dir)
        self._board = Board(shared.board)
        self._layout = context.config.layout
        self._inbox, self._outbox = RingReader(shared.inbox), RingSender(shared.outbox)
        self._results = [RingReader(ring_fds) for ring_fds in (*shared.results, shared.returned)]
        self._steps = [RingSender(ring_fds) for ring_fds in shared.steps]
        if self._layout.pods > 1:
            self._steps.append(RingSender(shared.relay))
        self._poll = select.poll()
        for fds in (self._inbox.fds, *(reader.fds for reader in self._results)):
            self._poll.register(fds.data, select.POLLIN)
        for sender in (self._outbox, *self._steps):
            self._poll.register(sender.fds.space, select.POLLIN)

    def start(self) -> None:
        """Wait for the hello of every rank."""
        self._grammars = grammars_of(self._model_dir)  # takes a moment, and less than a rank takes to load
        self._poll.register(self._grammars.finished, select.POLLIN)
        said = rank_info.intersect(self._wait_for_ranks())
        step_length = step_length_of(said.device, self._layout.pipeline, self._config.token_interval_s)
        step_times = StepTimeModel(mixed_sizes(said.graphs))
        self._scheduler = Scheduler(rank_info.limits(said, self._config), step_length, step_times)
        self._admission = Admission(self._scheduler, self._grammars, Masker(said.vocabulary, said.device))
        self._constraints = self._admission.constraints
        self._step_deadline = StepDeadline()
        self._path = said.path
        self._graph_names, self._began_s = said.graphs, time.monotonic()
        self._graphs = GraphBook(said.graphs)
        self._since_capture = 0
        self._memory = GroupMemory(self._layout.ranks)
        self._order_ns = round(1e9 * order_seconds(inspect(self._model_dir).size_bytes))
        self._outbox.send(rank_info.dump(said))
        self._board.set(Gauge.CONTEXT_LENGTH, said.context_length)
        self._show()
        self._board.write(CORE, ProcessSlot.PHASE, group_pb2.SERVING)

    def _wait_for_ranks(self) -> list[RankCapabilities]:
        heard: list[RankCapabilities] = []
        while len(heard) < self._layout.ranks:
            self._sleep()
            heard += [said for record in self._answers() if (said := rank_info.load(record)) is not None]
        return heard

    def _answers(self) -> Iterator[bytes]:
        """What the ranks have said, in any order; results come from one of them alone."""
        for reader in self._results:
            while (record := reader.pop()) is not None:
                yield record

    def turn(self) -> None:
        """Do what is to be done, and wait until there is more, or for a moment."""
        moved = self._receive()
        moved |= self._collect()
        moved |= self._issue()
        if moved:
            self._show()
            self._outbox.send(encode(self._scheduler.load()))
        self._flush()
        self._sleep()

    def _receive(self) -> bool:
        moved = False
        while (record := self._inbox.pop()) is not None:
            moved = True
            message = decode(record)
            if isinstance(message, NewRequest):
                self._admission.submit(message)
            elif isinstance(message, Cancel):
                self._board.add(Gauge.CANCELLED_TOTAL, 1)
                self._admission.cancel(message.key)
            elif isinstance(message, Sleep | Wake):
                self._memory.ask(message)
        for new, why in self._admission.settled():
            moved = True
            if why is not None:
                self._outbox.send(encode(RefusedRequest(new.key, why.field, why.message)))
                continue
            self._board.add(Gauge.REQUESTS_TOTAL, 1)
            self._board.add(Gauge.PROMPT_TOKENS_TOTAL, len(new.prompt))
        return moved

    def _collect(self) -> bool:
        moved = False
        for record in self._answers():
            moved = True
            result = decode(record)
            if isinstance(result, MemoryState):
                self._take_answer(result)
                continue
            assert isinstance(result, StepResult)
            took_ns = self._step_deadline.returned(time.monotonic_ns())
            outputs = self._scheduler.update(result)
            if broken := self._constraints.returned(result.number, outputs):
                outputs = self._fail(broken, outputs)
            if self._graphs.returned(result.number):
                logger.info("captured %d graphs in %.1f s", len(self._graph_names), time.monotonic() - self._began_s)
            self._scheduler.observe(result.number, took_ns / 1e9)
            if outputs:
                self._outbox.send(encode(outputs))
            self._board.write(CORE, ProcessSlot.FINISHED, result.number)
            self._board.add(Gauge.STEPS_TOTAL, 1)
            self._board.add(Gauge.STEP_NANOSECONDS_TOTAL, took_ns)
            self._board.add(Gauge.GENERATED_TOKENS_TOTAL, outputs.tokens)
            self._board.write(CORE, ProcessSlot.DEADLINE, self._step_deadline.deadline_ns)
        return moved

    def _fail(self, broken: Sequence[int], outputs: Outputs) -> Outputs:
        """End these requests, which would else seem to have ended well."""
        for key in broken:
            logger.error("request %d: its grammar went beyond the bounds of llguidance; it is ended", key)
            self._scheduler.cancel(key)
        others = (
            output._replace(ids=(), finish=Finish.FAILED, scores=None) if output.key in broken else output
            for output in outputs
        )
        return Outputs(others=tuple(others))

    def _take_answer(self, state: MemoryState) -> None:
        if (whole := self._memory.answered(state)) is not None:
            self._outbox.send(encode(whole))
        if not self._memory.awaits_ranks:
            self._board.write(CORE, ProcessSlot.DEADLINE, self._step_deadline.deadline_ns)

    def _order(self) -> bool:
        """Send the ranks what serve has asked of them, once there is no request and no step under way; whether anything
        was sent."""
        if not self._scheduler.idle or self._admission.compiling:
            return False
        if self._scheduler.owes_zeros:  # of blocks that are kept
            return self._heartbeat()
        order = self._memory.send()
        if isinstance(order, Sleep) and not order.keep_kv:
            self._scheduler.forget_prefixes()
        self._board.write(CORE, ProcessSlot.DEADLINE, time.monotonic_ns() + self._order_ns)
        send_to_all(self._steps, encode(order))
        return True

    def _heartbeat(self) -> bool:
        if (step := self._scheduler.heartbeat()) is None:
            return False
        self._send_step(step)
        return True

    def _issue(self) -> bool:
        self._send_masks()  # also beside orders: a rank may wait for masks of the last step
        if self._memory.holds_steps and not (self._memory.lets_requests_end and self._scheduler.has_requests):
            return self._issue_beside_orders()
        moved = False
        while not self._constraints.owing and (step := self._next()) is not None:
            moved = True
            self._send_step(step)
            self._send_masks()
        for refused in self._scheduler.refused():
            moved = True
            self._report(refused)
        if self._constraints.owing:
            return moved
        self._beat_when_idle()
        return moved

    def _issue_beside_orders(self) -> bool:
        """While the ranks sleep, or are about to."""
        if self._memory.awaits_steps:
            return self._order()
        if not self._memory.awaits_ranks:
            self._beat_when_idle()
        return False

    def _beat_when_idle(self) -> None:
        if self._step_deadline.idle_ns(time.monotonic_ns()) > _IDLE_NS:
            self._heartbeat()

    def _report(self, refused: RefusedStep) -> None:
        """The requests of a step that the scheduler made wrong end with an error, and it is counted."""
        logger.error("a bug: %s; the step is not computed, its %d requests fail", refused.message, len(refused.outputs))
        self._board.add(Gauge.INVALID_STEPS_TOTAL, 1)
        for output in refused.outputs.others:
            self._constraints.drop(output.key)
        self._outbox.send(encode(refused.outputs))

    def _next(self) -> Step | None:
        """A step of requests; while graphs are missing, when idle or after some steps, one that captures."""
        if self._since_capture < _CAPTURE_EVERY and (step := self._scheduler.schedule()) is not None:
            self._since_capture += not self._graphs.complete
            if self._constraints.bound:
                step = self._constraints.mark(step, self._scheduler.sampled())
            return replace(step, graph=self._graphs.pick(step), path=self._path)
        self._since_capture = 0
        if self._graphs.complete or (step := self._scheduler.heartbeat()) is None:
            return None
        return replace(step, graph=self._graphs.capture(step.number), path=self._path)

    def _send_step(self, step: Step) -> None:
        self._step_deadline.issued(time.monotonic_ns(), self._scheduler.predict(step))
        self._board.write(CORE, ProcessSlot.ISSUED, step.number)
        self._board.write(CORE, ProcessSlot.DEADLINE, self._step_deadline.deadline_ns)
        send_to_all(self._steps, encode(step))

    def _send_masks(self) -> None:
        if (masks := self._constraints.masks()) is not None:
            send_to_all(self._steps, encode(masks))

    def _flush(self) -> None:
        for sender in (self._outbox, *self._steps):
            sender.flush()

    def _show(self) -> None:
        load, board = self._scheduler.load(), self._board
        for gauge, value in (
            (Gauge.RUNNING, load.running), (Gauge.WAITING, load.waiting), (Gauge.BLOCKS_FREE, load.free_blocks),
            (Gauge.BLOCKS_TOTAL_SIZE, load.total_blocks), (Gauge.BLOCKS_CACHED, load.cached_blocks),
            (Gauge.PREEMPTIONS_TOTAL, load.preemptions), (Gauge.PREFIX_HIT_TOKENS_TOTAL, load.cache_hits),
        ):  # fmt: skip
            board.set(gauge, value)

    def _sleep(self) -> None:
        self._board.beat(CORE)
        for fd, _ in self._poll.poll(_POLL_MS):
            ring.clear(fd)
        self._board.beat(CORE)


def main(context: ProcessContext) -> None:
    core = Core(context)
    core.start()
    gc.freeze()
    while True:
        core.turn()


if __name__ == "__main__":
    process.run("core", main)
