"""The pipeline of one request over either protocol: prepare, submit, write the answer as tokens come, clean up.

    message --(buffered, bounded)--> prepare --> PreparedRequest --> run: Dispatcher.submit --> sinks write --> done
                                        ^                                      |
                                        +--- its model has no group any more --+  before anything has been written

HTTP (`http/handlers.py`) and gRPC (`grpc/grpc_service.py`) are shells over it: they read, write, and send errors.
"""

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from octavo.router.answers.answer import Answer
from octavo.router.answers.delta import AnswerWriter
from octavo.router.answers.generation import Generation
from octavo.router.answers.parsed_answer import ParsedAnswer
from octavo.router.frontend import deadlines
from octavo.router.frontend.body_buffer import BodyBuffer
from octavo.router.frontend.job_builder import PLAIN_TEXT, AnswerForm, RequestPlan
from octavo.router.frontend.kept_bodies import KeptBodies, KeptBody
from octavo.router.frontend.key_file import KeyFile
from octavo.router.frontend.keys import Keys
from octavo.router.jobs.generation import Dispatcher, ModelChanged, RequestError, Sink
from octavo.router.jobs.refusals import timed_out, unknown_model
from octavo.router.metrics import RouterMetrics
from octavo.router.openai_api.cors import Cors
from octavo.router.openai_api.fields import unsupported
from octavo.router.text.bodies import BodyKind, EncodedRequest
from octavo.router.text.tokenizing import Operation, Tokenized
from octavo.router.tokenizer_pool.model_loader import LoadedModel, ModelLoader
from octavo.router.tokenizer_pool.pool import TOO_SLOW

T = TypeVar("T")

MAX_TOKENISATIONS = 4  # of a request, each for another model


@dataclass(slots=True)
class ServerState:
    """Whether the process drains, and how many requests are open; shared by all handlers."""

    draining: bool = False
    open: int = 0


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers of a process share. served_name: in the API; empty: what the groups call the model.

    max_wait_s: for a group's files to come. key_file: None: no key is needed. strict: unknown fields are refused.
    client_priority: clients may choose the priority of their requests.
    """

    dispatcher: Dispatcher
    model_loader: ModelLoader
    metrics: RouterMetrics
    state: ServerState
    served_name: str
    max_wait_s: float
    body_buffer: BodyBuffer = field(default_factory=BodyBuffer)
    kept_bodies: KeptBodies = field(default_factory=KeptBodies)
    key_file: KeyFile | None = None
    cors: Cors = field(default_factory=Cors)
    strict: bool = False
    client_priority: bool = False

    @property
    def keys(self) -> Keys | None:
        """None: no key is needed."""
        return None if self.key_file is None else self.key_file.keys

    @property
    def lacks_keys(self) -> bool:
        """Requests need a key, and none is valid: all are refused."""
        return self.keys is not None and self.keys.count == 0

    @property
    def ready(self) -> bool:
        """A group serves, its text side is loaded, and requests are not all refused for want of valid keys."""
        return self.dispatcher.ready and bool(self.model_loader.loaded) and not self.lacks_keys

    def names(self, loaded: LoadedModel) -> tuple[str, ...]:
        """Of a model, for clients."""
        return (self.served_name,) if self.served_name else loaded.model.names

    @property
    def cards(self) -> dict[str, int]:
        """The models' names, as clients know them, and the context of each; 0: not known yet. Empty before the first
        group, unless the name is given."""
        cards = {self.served_name: 0} if self.served_name else {}
        for loaded in self.model_loader.loaded:
            for name in self.names(loaded):
                cards[name] = max(cards.get(name, 0), loaded.model.context_length)
        return cards


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A checked and tokenized request. begun, deadline: monotonic seconds. name: of the model, for the client.
    kept: the body that it was made of, while it may be tokenised for another model. is_retokenised: it has been."""

    id: str
    name: str
    loaded: LoadedModel
    encoded: EncodedRequest
    kept: KeptBody
    begun: float
    deadline: float = math.inf
    is_retokenised: bool = False

    @property
    def plan(self) -> RequestPlan:
        return RequestPlan(self.loaded, self.encoded, self.is_retokenised)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt) // 4 for prompt in self.encoded.prompts)


async def prepare(services: Services, body_kind: BodyKind, body: bytes, deadline: float = math.inf) -> PreparedRequest:
    """Check and tokenise, by `deadline` (monotonic seconds). Raises RequestError."""
    begun = asyncio.get_running_loop().time()
    async with deadlines.ending_at(deadline):
        loaded, encoded = await _tokenised(services, body_kind, body, begun + services.max_wait_s)
    request = encoded.request
    if request.options.priority and not services.client_priority:
        raise unsupported("priority", "priority must be 0: this service's routers run without --client-priority")
    if request.timeout_s is not None:
        deadline = min(deadline, begun + request.timeout_s)
    name, kept = served_by(services, loaded, request.model), KeptBody(body_kind, body)
    return PreparedRequest(secrets.token_hex(12), name, loaded, encoded, kept, begun, deadline)


async def _tokenised(
    services: Services, body_kind: BodyKind, body: bytes, latest: float
) -> tuple[LoadedModel, EncodedRequest]:
    """For the model whose turn it is; for another one where the request names it, or is too long for the first."""
    loaded = await services.model_loader.current(latest)
    try:
        encoded = await loaded.prepare(body_kind, body)
    except RequestError as error:
        return await _accepted_by_another(services, loaded, body_kind, body, error)
    named = named_model(services, loaded, encoded.request.model)
    return (loaded, encoded) if named is None else (named, await named.prepare(body_kind, body))


async def _accepted_by_another(
    services: Services, refusing: LoadedModel, body_kind: BodyKind, body: bytes, error: RequestError
) -> tuple[LoadedModel, EncodedRequest]:
    """What a model refuses may be meant for another one, which has another name or a longer context. Raises `error`
    when none takes it; one that took too long to tokenise is not tried again."""
    if error.status != 400 or error.code == TOO_SLOW:
        raise error
    for one in services.model_loader.loaded:
        longer = error.code == "context_length_exceeded" and one.model.context_length > refusing.model.context_length
        other_name = services.names(one) != services.names(refusing)
        if one.model.digest == refusing.model.digest or not (longer or other_name):
            continue
        try:
            encoded = await one.prepare(body_kind, body)
        except RequestError:
            continue
        asked = encoded.request.model
        if asked in services.names(one) or (longer and asked is None):
            return one, encoded
    raise error


def named_model(services: Services, loaded: LoadedModel, asked: str | None) -> LoadedModel | None:
    """Another loaded model, which the request names; None: it does not, or `loaded` has that name."""
    if asked is None or asked in services.names(loaded):
        return None
    return next((one for one in services.model_loader.loaded if asked in services.names(one)), None)


async def answering(
    services: Services, prepared: PreparedRequest, answer: Callable[[PreparedRequest], Awaitable[T]]
) -> T:
    """Run `answer`, and again, tokenised again, when its model has no group any more before a streamed answer has its
    first token, or another one has ended. Raises RequestError."""
    kept = prepared.kept
    services.kept_bodies.keep(kept)
    try:
        for _ in range(MAX_TOKENISATIONS - 1):
            try:
                return await answer(prepared)
            except ModelChanged:
                if kept.body is None:
                    raise
                again = await prepare(services, kept.body_kind, kept.body, prepared.deadline)
                services.metrics.tally.retokenised += 1
                prepared = replace(
                    prepared, loaded=again.loaded, encoded=again.encoded, name=again.name, is_retokenised=True
                )
        return await answer(prepared)
    finally:
        kept.release()


async def run_operation(services: Services, operation: Operation, body: bytes, deadline: float = math.inf) -> Tokenized:
    """Run /tokenize or /detokenize, which need no group. Raises RequestError."""
    async with deadlines.ending_at(deadline):
        loaded = await services.model_loader.current(asyncio.get_running_loop().time() + services.max_wait_s)
        done = await loaded.run(operation, body)
        if (named := named_model(services, loaded, done.model)) is not None:
            loaded, done = named, await named.run(operation, body)
    served_by(services, loaded, done.model)
    return done


def served_by(services: Services, loaded: LoadedModel, asked: str | None) -> str:
    """The model's name. Raises RequestError 404 when another was asked for."""
    names = services.names(loaded)
    if asked is not None and asked not in names:
        raise unknown_model(asked, tuple(services.cards) or names)
    return asked or names[0]


@contextmanager
def run(
    services: Services,
    prepared: PreparedRequest,
    writer: AnswerWriter,
    id: str,
    form: AnswerForm = PLAIN_TEXT,
    sink: Callable[[Generation], Sink] = lambda generation: generation,
) -> Iterator[Answer]:
    """`n` jobs a prompt, each cancelled when the block is left before it has ended. Raises RequestError.

    id: for logs. form: what is found in the text, and shown beside it, before it comes to `writer`. sink: wraps a
    generation's sink.
    """
    plan, first_token = prepared.plan, partial(_first_token, services.metrics, prepared)
    line = writer if form.parser is None else ParsedAnswer(writer, form.parser)
    answer = Answer(line, prepared.prompt_tokens, services.metrics.tally, first_token, plan.copies)
    timer = _timer(answer, prepared.deadline)
    try:
        for index in range(len(prepared.encoded.prompts) * plan.copies):
            generation, job = plan.generation(index, answer, form), plan.job(index, id, prepared.deadline)
            handle = services.dispatcher.submit(job, sink(generation))
            answer.handles.append(handle)
            if generation.over:
                handle.cancel()
            if index % plan.copies == 0 and not prepared.is_retokenised:
                services.metrics.tally.prompt_tokens += job.prompt_tokens
        yield answer
    finally:
        answer.cancel()
        if timer is not None:
            timer.cancel()


def _timer(answer: Answer, deadline: float) -> asyncio.TimerHandle | None:
    """Ends the answer at its deadline."""
    if deadline == math.inf:
        return None
    return asyncio.get_running_loop().call_at(deadline + deadlines.QUEUE_FIRST_S, answer.failed, timed_out())


def internal_error(id: str) -> RequestError:
    """The error that a client gets for a bug of ours."""
    return RequestError(500, "server_error", "internal_error", f"the router failed; its log has the cause under {id}")


def _first_token(metrics: RouterMetrics, prepared: PreparedRequest) -> None:
    if not prepared.is_retokenised:
        metrics.first_token.observe(asyncio.get_running_loop().time() - prepared.begun)
    alone = len(prepared.encoded.prompts) * prepared.encoded.request.options.n == 1
    if alone and prepared.encoded.request.stream:  # of others nothing has reached the client yet
        prepared.kept.release()
