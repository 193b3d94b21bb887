"""The helper processes of one router process: a queue, and a limit of 2 seconds after which one is killed and replaced.

A request whose helper was lost by no fault of its own is tried once more, before all that wait: tokenising has no
effect but its answer. A request that had the limit in full is refused at once, because a second helper would take it
too; one at which helpers end by themselves is refused after the second. A request whose client has gone is skipped, or
its result is dropped.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from octavo.router.background import background
from octavo.router.jobs.generation import Model, RequestError
from octavo.router.jobs.refusals import broken_helper, draining, helper_lost
from octavo.router.openai_api.fields import invalid
from octavo.router.parsers.parser_flags import AUTO, ParserFlags
from octavo.router.text.bodies import BodyKind, Detokenised, EncodedRequest, input_field
from octavo.router.text.tokenizing import Operation, Tokenized
from octavo.router.tokenizer_pool.helper import Header, detokenised, encoded, error_in, pack, tokenized
from octavo.router.tokenizer_pool.helper_process import Fault, HelperProcess, fault_of_end, fault_over_limit

log = logging.getLogger(__name__)

LIMIT_S = 2.0
MOST_LIMITS = 5  # that a helper without half of a CPU is given
MAX_WAITING = 1_000
BACKOFF_S = (0.1, 5.0)
TRIES = 2  # helpers that a request may lose by no fault of its own
TOO_SLOW = "too_slow_to_tokenise"  # code of the error of a request that took longer
CAUSES: dict[Fault, str] = {"slow": "by its own work", "outside": "the helper was stopped or had no CPU"}
# What a body is: of a request that is prepared, of one that asks for text or ids only.
WorkKind = BodyKind | Operation | Literal["detokenize"]


@dataclass(slots=True)
class _Work:
    """body: of this form. context_length: that it must fit into. understand: a helper's answer, as `result`. losses:
    helpers that were lost at it."""

    body_kind: WorkKind
    body: bytes
    context_length: int
    understand: Callable[[Header, bytes], Any]  # Any: whatever the caller waits for
    result: "asyncio.Future[Any]"
    losses: int = 0


@dataclass(slots=True)
class PoolCounts:
    killed: int = 0  # over the limit
    died: int = 0  # by themselves


class HelperPool:
    """`size` helpers loaded with one model. `warm` is set once one has loaded it; the others start then, so that their
    start, a second of a CPU each, leaves the router and what is served beside it one of two. Close it to end them."""

    def __init__(self, model: Model, size: int, flags: ParserFlags = AUTO) -> None:
        self.counts = PoolCounts()
        self.warm = asyncio.Event()
        self._load = _load_frame(model, flags)
        self._order = itertools.count()
        self._queue: asyncio.PriorityQueue[tuple[int, int, _Work]] = asyncio.PriorityQueue()  # -losses, order, work
        self._tasks = [background(self._keep(is_first=not index), f"helper {index}") for index in range(size)]

    async def prepare(self, body_kind: BodyKind, body: bytes, context_length: int) -> EncodedRequest:
        """Raises RequestError: 400 by the client's fault or over the limit, 429 when too many wait."""
        read: EncodedRequest = await self._ask(body_kind, body, context_length, encoded)
        return read

    async def detokenise(self, body: bytes) -> Detokenised:
        """Raises RequestError as `prepare` does."""
        read: Detokenised = await self._ask("detokenize", body, 0, detokenised)
        return read

    async def run(self, operation: Operation, body: bytes, context_length: int) -> Tokenized:
        """Raises RequestError as `prepare` does."""
        done: Tokenized = await self._ask(operation, body, context_length, tokenized)
        return done

    async def _ask(
        self, body_kind: WorkKind, body: bytes, context_length: int, understand: Callable[[Header, bytes], Any]
    ) -> Any:  # as in _Work
        if self._queue.qsize() >= MAX_WAITING:
            raise RequestError(
                429, "rate_limit_error", "queue_full", "too many requests wait to be tokenised; try again later", 1.0
            )
        work = _Work(body_kind, body, context_length, understand, asyncio.get_running_loop().create_future())
        self._put(work)
        return await work.result

    def _put(self, work: _Work) -> None:
        self._queue.put_nowait((-work.losses, next(self._order), work))

    async def retire(self) -> None:
        """Finish what waits, then close."""
        await self._queue.join()
        await self.close()

    async def close(self) -> None:
        """What still waits is refused."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._queue.empty():
            _settle(self._queue.get_nowait()[-1], draining())

    async def _keep(self, is_first: bool) -> None:
        """One helper after another, each until it is killed or dies."""
        if not is_first:
            await self.warm.wait()
        pause_s = BACKOFF_S[0]
        while True:
            helper = HelperProcess()
            try:
                await helper.start(self._load)
                pause_s = BACKOFF_S[0]
                self.warm.set()
                await self._use(helper)
            except (OSError, TimeoutError, EOFError) as error:
                log.warning("a helper process died (%s: %s); starting another", type(error).__name__, error)
            except Exception:  # a helper's output is not trusted
                log.exception("a helper process sent an invalid answer; starting another")
            else:
                continue  # killed by us
            finally:
                await helper.kill()
            self.counts.died += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_S[1])

    async def _use(self, helper: HelperProcess) -> None:
        """Returns when the helper had to be killed. Raises EOFError when it ends, also while it has nothing to do."""
        while True:
            work = await self._next(helper)
            try:
                if not work.result.done() and not await self._work(helper, work):
                    return
            except asyncio.CancelledError:
                _settle(work, draining())
                raise
            finally:
                self._queue.task_done()

    async def _next(self, helper: HelperProcess) -> _Work:
        getting = asyncio.ensure_future(self._queue.get())
        gone = asyncio.ensure_future(helper.gone.wait())
        taken = False
        try:
            await asyncio.wait((getting, gone), return_when=asyncio.FIRST_COMPLETED)
            if helper.gone.is_set():
                raise EOFError(f"it ended with code {await helper.code()} while it had nothing to do")
            taken = True
            return getting.result()[-1]
        finally:
            gone.cancel()
            if not taken and not getting.cancel():  # it came in the same moment: another helper takes it
                self._queue.put_nowait(getting.result())
                self._queue.task_done()

    async def _work(self, helper: HelperProcess, work: _Work) -> bool:
        """False: over the limit. Whatever happens, the work is settled, or waits again."""
        answer = asyncio.ensure_future(
            helper.call(pack({"read": work.body_kind, "context_length": work.context_length}, work.body))
        )
        try:
            if fault := await self._fault(helper, answer):
                self.counts.killed += 1
                log.warning(
                    "a request took more than %s s to tokenise (%s): its helper is replaced", LIMIT_S, CAUSES[fault]
                )
                self._lost(work, fault)
                return False
            _answer(work, *await answer)
        except (OSError, EOFError):
            self._lost(work, fault_of_end(await helper.code()))
            raise
        except Exception:
            _settle(work, broken_helper())
            raise
        finally:
            answer.cancel()
        return True

    async def _fault(self, helper: HelperProcess, answer: "asyncio.Future[tuple[Header, bytes]]") -> Fault | None:
        """Wait for the answer. None: it is there, or an error in its place; else why it is waited for no longer."""
        uses = [helper.usage()]
        for _ in range(MOST_LIMITS):
            done, _ = await asyncio.wait({answer}, timeout=LIMIT_S)
            if done:
                return None
            uses.append(helper.usage())
            if (fault := fault_over_limit(uses, LIMIT_S)) is not None:
                return fault
        return "outside"

    def _lost(self, work: _Work, fault: Fault) -> None:
        """The work's helper is lost: the work is tried once more, or refused."""
        work.losses += 1
        if fault == "slow":
            _settle(work, _too_slow(work))
        elif work.losses < TRIES:
            self._put(work)
        elif fault == "memory":
            _settle(work, _too_large(work))
        else:
            _settle(work, helper_lost() if fault == "outside" else broken_helper())


def _answer(work: _Work, header: Header, payload: bytes) -> None:
    if work.result.done():
        return
    if (error := error_in(header)) is not None:
        work.result.set_exception(error)
    else:
        work.result.set_result(work.understand(header, payload))


def _settle(work: _Work, error: RequestError) -> None:
    if not work.result.done():
        work.result.set_exception(error)


def _too_slow(work: _Work) -> RequestError:
    field = _input_field(work)
    message = f"{field or 'the input'} took more than {LIMIT_S:g} s to render and tokenise: send less"
    return invalid(field, message, TOO_SLOW)


def _too_large(work: _Work) -> RequestError:
    field = _input_field(work)
    return invalid(field, f"{field or 'the input'} took too much memory to render and tokenise: send less", "too_large")


def _input_field(work: _Work) -> str | None:
    if work.body_kind == "detokenize":
        return "token_ids"
    if work.body_kind == "detokenize_json":
        return "tokens"
    if work.body_kind == "tokenize_json":
        return "messages" if b'"messages"' in work.body else "prompt"
    return input_field(work.body_kind, work.body)


def _load_frame(model: Model, flags: ParserFlags) -> bytes:
    sizes = [[name, len(data)] for name, data in model.files.items()]
    header = {"load": sizes, "parsers": [flags.tools, flags.reasoning]}
    return pack(header, b"".join(model.files.values()))
