"""Jobs for a router's fleet side, and sinks that record their calls."""

import asyncio
import itertools
from array import array
from collections.abc import Sequence
from typing import Any

from support.patience import PATIENCE_S, Bound
from support.router.fake_leader import Script

from octavo.router.jobs.generation import Job, RequestError
from octavo.shared.sampling_params import SamplingParams

_names = itertools.count()


def job(prompt_tokens: int = 10, max_tokens: int = 5, **fields: Any) -> Job:
    """A greedy job; fields: of Job."""
    prompt = array("I", range(prompt_tokens)).tobytes()
    fields = {"sampling": SamplingParams(), "digest": Script().digest} | fields
    return Job(id=f"test-{next(_names)}", prompt=prompt, max_tokens=max_tokens, **fields)


class Recorder:
    """A Sink. restartable: as for a client that has been sent nothing yet."""

    def __init__(self, restartable: bool = False) -> None:
        self.ids: list[int] = []
        self.finish = 0
        self.scored: list[tuple[bytes, bytes]] = []
        self.heard_at: list[int] = []
        self.errors: list[RequestError] = []
        self.restarts = 0
        self.ended = 0
        self._restartable = restartable
        self._changed = asyncio.Event()

    @property
    def error(self) -> RequestError:
        assert len(self.errors) == 1, self.errors
        return self.errors[0]

    def tokens(self, ids: Sequence[int], finish: int, cached: int) -> None:
        self.ids += ids
        if finish:
            self.finish = finish
            self.ended += 1
        self._changed.set()

    def scores(self, tokens: bytes, prompt: bytes) -> None:
        self.scored.append((tokens, prompt))
        self.heard_at.append(len(self.ids))

    def failed(self, error: RequestError) -> None:
        self.errors.append(error)
        self.ended += 1
        self._changed.set()

    def restart(self) -> bool:
        if self._restartable:
            self.restarts += 1
            self.ids.clear()
        return self._restartable

    async def begun(self, timeout_s: float = PATIENCE_S) -> None:
        """Some ids have come, or it has ended."""
        await self._until(lambda: bool(self.ids) or bool(self.ended), timeout_s)

    async def end(self, timeout_s: float = PATIENCE_S) -> None:
        await self._until(lambda: bool(self.ended), timeout_s)

    async def _until(self, true: Any, timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while not true():
                self._changed.clear()
                await self._changed.wait()


async def until(true: Any, timeout_s: float = PATIENCE_S) -> None:
    """Poll a condition."""
    bound = Bound(timeout_s)
    while not true():
        assert not bound.over, f"not so within {bound}"
        await asyncio.sleep(0.01)
    bound.kept()
