"""Helper processes of a router that do what a test says."""

import asyncio
from collections.abc import Sequence
from typing import Any

from octavo.router.tokenizer_pool.helper_process import ProcessUsage

REFUSAL = {"error": {"status": 400, "type": "t", "code": "c", "message": "no", "field": None}}
LATE: Any = ({"error": {**REFUSAL["error"], "code": "late", "message": "of an earlier request"}}, b"")


class ScriptedHelpers:
    """answers: what calls give, in order, over all helpers; the last for ever. An exception is raised, an int is the
    exit code with which the process ends, ProcessUsage are its usage after a call that does not return in time: its
    answer is LATE, and the next call of the same helper would read it."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.started = 0
        self.processes: list[ScriptedHelper] = []

    def made(self) -> "ScriptedHelper":
        self.processes.append(ScriptedHelper(self))
        return self.processes[-1]


class ScriptedHelper:
    """Stands for a HelperProcess."""

    def __init__(self, helpers: ScriptedHelpers) -> None:
        self._helpers = helpers
        self._vitals = ProcessUsage("S", 0.0)
        self._code = 0
        self._is_late = False
        self.killed = False
        self.gone = asyncio.Event()

    async def start(self, load: bytes) -> None:
        self._helpers.started += 1

    async def call(self, frame: bytes) -> Any:
        if self._is_late:
            return LATE
        answers = self._helpers.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ProcessUsage):
            self._vitals, self._is_late = answer, True
            await asyncio.Event().wait()
        if isinstance(answer, int):
            self.end(answer)
            raise EOFError
        return answer

    def end(self, code: int) -> None:
        self._code = code
        self.gone.set()

    def usage(self) -> ProcessUsage:
        return self._vitals

    async def code(self) -> int:
        return self._code

    async def kill(self) -> None:
        self.killed = True
