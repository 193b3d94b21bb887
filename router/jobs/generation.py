"""The interface between a router's frontend and its dispatch: a job in, tokens or one error out.

    Dispatcher.submit(job, sink) -> Handle
        [sink.scores(tokens, prompt)]           of what comes next
        sink.tokens(ids, finish, cached) *      finish != 0 on the last call
        | sink.restart() -> True                its group was lost: the tokens begin again
        | sink.failed(error)                    instead of a finish, at any point

After the call that ends it, or after Handle.cancel(), a sink is not called again.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.router.errors import RouterError
from octavo.router.jobs.reachability import Reachability
from octavo.shared.sampling_params import SamplingParams

# The values of proto Finish.
NOT_FINISHED = 0
STOP = 1
LENGTH = 2
FAILED = 3

GRAMMAR = "response_format"  # what groups call a grammar, in their features and when they refuse one


@dataclass(frozen=True, slots=True)
class Job:
    """One engine request, validated and tokenised.

    id: for logs. prompt: packed little-endian uint32 ids. stop_ids: ids that end it and are not shown.
    priority: higher goes first, here and in the engine; clients set it where they may. tenant: the owner of its share
    of the queue; no client can set it yet. deadline: monotonic seconds by which it must have been sent to a group; the
    queue's own bound holds besides. digest: of the Model that made the ids. salt: cached blocks are shared only with
    jobs of the same. needs: fields that a group's device may be unable to serve. optional: likewise, of the model's
    own defaults: a group that cannot serve them leaves them out. min_context: tokens that the group's context must
    hold. grammar: that binds the answer; empty: none. grammar_field: the client's field for it. readmitted: it was let
    into the queue before, tokenised for another model.
    """

    id: str
    prompt: bytes
    sampling: SamplingParams
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    priority: int = 0
    tenant: str = ""
    deadline: float = math.inf
    digest: str = ""
    salt: bytes = b""
    needs: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    min_context: int = 0
    grammar: str = ""
    grammar_field: str = ""
    readmitted: bool = False

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt) // 4

    def client_field(self, field: str) -> str:
        """The client's name of a field that an engine refuses: engines have one name for all grammars."""
        return self.grammar_field if field == GRAMMAR and self.grammar_field else field


class RequestError(RouterError):
    """A refusal or failure of one request, as the client gets it.

    type, code: machine-readable, as OpenAI's error objects have them (`type` the class, `code` the reason).
    retry_after: seconds, for a header of that name. field: the request field at fault. final: clients that retry
    by themselves are asked not to.
    """

    def __init__(
        self,
        status: int,
        type: str,
        code: str,
        message: str,
        retry_after: float | None = None,
        field: str | None = None,
        final: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.field = field
        self.final = final

    def __repr__(self) -> str:
        return f"RequestError({self.status}, {self.code!r}, {self.message!r})"


class ModelChanged(RequestError):
    """No group serves the model any more for which a request was tokenised, and groups serve another one."""


class Sink(Protocol):
    """Receives a job's tokens. Calls are synchronous, from the handler of the step output: be quick, never raise."""

    def tokens(self, ids: Sequence[int], finish: int, cached: int) -> None:
        """Some more ids, perhaps none. finish: 0 while it goes on, else STOP or LENGTH: the last call.

        cached: prompt tokens that came from the prefix cache, on the first call; else 0.
        """

    def scores(self, tokens: bytes, prompt: bytes) -> None:
        """Log-probabilities, packed as in engine.proto: of the ids of the next call of `tokens`, and of some more
        tokens of the prompt, in order. Only for jobs that ask."""

    def failed(self, error: RequestError) -> None:
        """It ended with an error; tokens already given stand."""

    def restart(self) -> bool:
        """Its group was lost after some tokens. True: none has reached the client, all are dropped, the answer starts
        again.

        False: something is out, so nothing may be repeated; `failed` follows.
        """


class Handle(Protocol):
    """A job under way."""

    def cancel(self) -> None:
        """Stop it, wherever it is; its sink is not called again. Harmless when it has ended."""


@dataclass(frozen=True, slots=True)
class Model:
    """What a model's small files say. digest: of all that makes the model, the values of its weights included. files:
    tokenizer.json, generation_config.json, ... by name."""

    digest: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model, and what the groups that serve it now say of themselves.

    names: what they call it, the most frequent first. context_length: the longest of any. features: what Job.needs may
    hold: what any can do. groups: how many serve it; 0: none now.
    """

    model: Model
    names: tuple[str, ...]
    context_length: int
    features: frozenset[str] = frozenset()
    groups: int = 0

    @property
    def digest(self) -> str:
        return self.model.digest

    @property
    def name(self) -> str:
        return self.names[0]


class Dispatcher(Protocol):
    """Dispatches jobs to groups; implemented in octavo.router.dispatch.dispatch."""

    @property
    def ready(self) -> bool:
        """A group serves now."""

    @property
    def synced(self) -> bool:
        """The list of groups is known (it may be empty)."""

    @property
    def reachability(self) -> Reachability:
        """The listed groups, and the groups without a stream."""

    def submit(self, job: Job, sink: Sink) -> Handle:
        """Queue a job. Raises RequestError 429 `queue_full`, 503 `draining`."""

    @property
    def models(self) -> Sequence[ServedModel]:
        """The models that groups serve, by number of groups; while none does, the models of the last groups."""

    async def models_changed(self) -> None:
        """Wait until `models` has changed since the last call, of which there is one at a time."""

    def choose(self, digests: Collection[str]) -> ServedModel | None:
        """The model for the next request, of these: each has its share of the requests, by the number of its groups.
        None: none of them is among `models`."""

    async def model(self, deadline: float) -> ServedModel:
        """Wait until a group serves one, until `deadline` (monotonic seconds). Raises RequestError 503
        `no_capacity`."""
