"""The helper processes of one router process: a queue, and a limit of 2 seconds after which one is killed and replaced.

Only the request it worked on fails. A request whose client has gone is skipped, or finished for nobody.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from octavo.router.background import background
from octavo.router.bodies import Detokenised, Form, Prepared, input_field
from octavo.router.fields import invalid
from octavo.router.generation import Model, RequestError
from octavo.router.helper import LENGTHS, Header, detokenised, error_in, pack, prepared, tokenized
from octavo.router.parser_flags import AUTO, ParserFlags
from octavo.router.refusals import broken_helper, draining
from octavo.router.tokenizing import Operation, Tokenized

log = logging.getLogger(__name__)

LIMIT_S = 2.0
LOAD_LIMIT_S = 60.0
MAX_WAITING = 1_000
BACKOFF_S = (0.1, 5.0)
# What a body is: of a request that is prepared, of one that asks for text or ids only.
Reading = Form | Operation | Literal["detokenize"]


@dataclass(frozen=True, slots=True)
class _Work:
    """body: of this form. understand: a helper's answer, as `result`."""

    form: Reading
    body: bytes
    understand: Callable[[Header, bytes], Any]  # Any: whatever the caller waits for
    result: "asyncio.Future[Any]"


@dataclass(slots=True)
class PoolCounts:
    killed: int = 0  # over the limit
    died: int = 0  # by themselves


class HelperPool:
    """`size` helpers loaded with one model. Close it to end them."""

    def __init__(self, model: Model, size: int, flags: ParserFlags = AUTO) -> None:
        self.counts = PoolCounts()
        self._load = _load_frame(model, flags)
        self._queue: asyncio.Queue[_Work] = asyncio.Queue()
        self._tasks = [background(self._keep(), f"helper {index}") for index in range(size)]

    async def prepare(self, form: Form, body: bytes) -> Prepared:
        """Raises RequestError: 400 by the client's fault or over the limit, 429 when too many wait."""
        read: Prepared = await self._ask(form, body, prepared)
        return read

    async def detokenise(self, body: bytes) -> Detokenised:
        """Raises RequestError as `prepare` does."""
        read: Detokenised = await self._ask("detokenize", body, detokenised)
        return read

    async def run(self, operation: Operation, body: bytes) -> Tokenized:
        """Raises RequestError as `prepare` does."""
        done: Tokenized = await self._ask(operation, body, tokenized)
        return done

    async def _ask(self, form: Reading, body: bytes, understand: Callable[[Header, bytes], Any]) -> Any:  # as in _Work
        if self._queue.qsize() >= MAX_WAITING:
            raise RequestError(
                429, "rate_limit_error", "queue_full", "too many requests wait to be tokenised; try again later", 1.0
            )
        work = _Work(form, body, understand, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(work)
        return await work.result

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
            _settle(self._queue.get_nowait(), draining())

    async def _keep(self) -> None:
        """One helper after another, each until it is killed or dies."""
        pause_s = BACKOFF_S[0]
        while True:
            helper = _Helper()
            try:
                await helper.start(self._load)
                pause_s = BACKOFF_S[0]
                await self._use(helper)
            except (OSError, TimeoutError, EOFError) as error:
                log.warning("a helper process died (%s: %s); starting another", type(error).__name__, error)
            except Exception:  # what it said is not trusted: it may be anything
                log.exception("a helper process said nonsense; starting another")
            else:
                continue  # killed by us
            finally:
                await helper.kill()
            self.counts.died += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_S[1])

    async def _use(self, helper: "_Helper") -> None:
        """Returns when the helper had to be killed."""
        while True:
            work = await self._queue.get()
            try:
                if not work.result.done() and not await self._work(helper, work):
                    return
            finally:
                self._queue.task_done()

    async def _work(self, helper: "_Helper", work: _Work) -> bool:
        """False: over the limit. Whatever happens, the work is settled."""
        try:
            async with asyncio.timeout(LIMIT_S):
                header, payload = await helper.call(pack({"read": work.form}, work.body))
            _answer(work, header, payload)
        except TimeoutError:
            self.counts.killed += 1
            log.warning("a request took more than %s s to tokenise: refused, its helper is replaced", LIMIT_S)
            _settle(work, _too_slow(work))
            return False
        except (OSError, EOFError):
            _settle(work, _too_slow(work))
            raise
        except asyncio.CancelledError:
            _settle(work, draining())
            raise
        except Exception:
            _settle(work, broken_helper())
            raise
        return True


class _Helper:
    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, load: bytes) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "octavo.router.helper",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
        )
        async with asyncio.timeout(LOAD_LIMIT_S):
            header, _ = await self.call(load)
        if "invalid" in header:
            raise OSError(f"model files refused: {header['invalid']}")

    async def call(self, frame: bytes) -> tuple[Header, bytes]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(frame)
        await process.stdin.drain()
        lengths = await process.stdout.readexactly(LENGTHS)
        size = int.from_bytes(lengths[:4], "little")
        body = await process.stdout.readexactly(size + int.from_bytes(lengths[4:], "little"))
        return orjson.loads(body[:size]), body[size:]

    async def kill(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                self._process.kill()
        await self._process.wait()


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
    message = (
        f"{field or 'the input'} took more than {LIMIT_S:g} s (or too much memory) to render and tokenise: send less"
    )
    return invalid(field, message, "too_slow_to_tokenise")


def _input_field(work: _Work) -> str | None:
    if work.form == "detokenize":
        return "token_ids"
    if work.form == "detokenize_json":
        return "tokens"
    if work.form == "tokenize_json":
        return "messages" if b'"messages"' in work.body else "prompt"
    return input_field(work.form, work.body)


def _load_frame(model: Model, flags: ParserFlags) -> bytes:
    sizes = [[name, len(data)] for name, data in model.files.items()]
    header = {"load": sizes, "context_length": model.context_length, "parsers": [flags.tools, flags.reasoning]}
    return pack(header, b"".join(model.files.values()))
