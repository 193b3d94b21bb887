"""A router in front of a leader that gives scripted tokens: what tests of the HTTP side begin with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.router.fake_leader import FakeLeader, Script, serving
from support.router.routers import RunningRouter, routing
from support.router.vocabularies import byte_level, files, write
from tokenizers import Tokenizer

CONTEXT = 2048
TOKENIZER = byte_level()


@dataclass(frozen=True, slots=True)
class Front:
    router: RunningRouter
    leader: FakeLeader

    def say(self, text: str, interval_s: float = 0.0) -> int:
        """From now on the leader answers with this, over and over; the tokens of one round."""
        ids = tuple(TOKENIZER.encode(text).ids)
        self.leader.script = replace(self.leader.script, ids=ids, interval_s=interval_s)
        return len(ids)


@asynccontextmanager
async def front(
    folder: Path,
    *flags: str,
    tokenizer: Tokenizer = TOKENIZER,
    made: dict[str, bytes] | None = None,
    ready: bool = True,
    **script: Any,
) -> AsyncIterator[Front]:
    """Serves the model `m`. flags: of the router. made: the model's files. ready: wait until requests are answered.
    script: fields of Script."""
    address = f"unix:{folder}/leader.sock"
    model = write(folder / "model", made or files(tokenizer))
    settings: dict[str, Any] = {"served_name": "m", "context_length": CONTEXT, "ids": (300, 301, 302)} | script
    async with (
        serving(Script(tokenizer=model, **settings), address) as leader,
        routing([address], *flags, ready=ready) as router,
    ):
        yield Front(router, leader)
