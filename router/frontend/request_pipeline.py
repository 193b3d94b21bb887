"""The pipeline of one request over either protocol: prepare, submit, write the answer as tokens come, clean up.

    message --(buffered, bounded)--> prepare --> PreparedRequest --> run: Dispatcher.submit --> sinks write --> done

HTTP (`http/handlers.py`) and gRPC (`grpc/grpc_service.py`) are shells over it: they read, write, and send errors.
"""

import asyncio
import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from octavo.router.answers.answer import Answer
from octavo.router.answers.delta import AnswerWriter
from octavo.router.answers.generation import Generation
from octavo.router.answers.parsed_answer import ParsedAnswer
from octavo.router.frontend import deadlines
from octavo.router.frontend.body_buffer import BodyBuffer
from octavo.router.frontend.job_builder import PLAIN_TEXT, AnswerForm, RequestPlan
from octavo.router.frontend.keys import Keys
from octavo.router.jobs.generation import Dispatcher, RequestError, Sink
from octavo.router.jobs.refusals import timed_out, unknown_model
from octavo.router.metrics import RouterMetrics
from octavo.router.openai_api.cors import Cors
from octavo.router.openai_api.fields import unsupported
from octavo.router.text.bodies import BodyKind, EncodedRequest
from octavo.router.text.tokenizing import Operation, Tokenized
from octavo.router.tokenizer_pool.model_loader import LoadedModel, ModelLoader


@dataclass(slots=True)
class ServerState:
    """Whether the process drains, and how many requests are open; shared by all handlers."""

    draining: bool = False
    open: int = 0


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers of a process share. served_name: in the API; empty: what the groups call the model.

    max_wait_s: for a group's files to come. keys: None: no key is needed. strict: unknown fields are refused.
    client_priority: clients may choose the priority of their requests.
    """

    dispatcher: Dispatcher
    model_loader: ModelLoader
    metrics: RouterMetrics
    state: ServerState
    served_name: str
    max_wait_s: float
    body_buffer: BodyBuffer = field(default_factory=BodyBuffer)
    keys: Keys | None = None
    cors: Cors = field(default_factory=Cors)
    strict: bool = False
    client_priority: bool = False

    @property
    def ready(self) -> bool:
        """A group serves, and its text side is loaded."""
        return self.dispatcher.ready and self.model_loader.loaded is not None

    @property
    def model_name(self) -> str:
        """As clients know it; empty before the first group."""
        loaded = self.model_loader.loaded
        return self.served_name or (loaded.model.name if loaded is not None else "")


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A checked and tokenized request. begun, deadline: monotonic seconds. name: of the model, for the client."""

    id: str
    name: str
    loaded: LoadedModel
    encoded: EncodedRequest
    begun: float
    deadline: float = math.inf

    @property
    def plan(self) -> RequestPlan:
        return RequestPlan(self.loaded, self.encoded)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt) // 4 for prompt in self.encoded.prompts)


async def prepare(services: Services, body_kind: BodyKind, body: bytes, deadline: float = math.inf) -> PreparedRequest:
    """Check and tokenise, by `deadline` (monotonic seconds). Raises RequestError."""
    begun = asyncio.get_running_loop().time()
    async with deadlines.ending_at(deadline):
        loaded = await services.model_loader.current(begun + services.max_wait_s)
        encoded = await loaded.prepare(body_kind, body)
    request = encoded.request
    if request.options.priority and not services.client_priority:
        raise unsupported("priority", "priority must be 0: this service's routers run without --client-priority")
    if request.timeout_s is not None:
        deadline = min(deadline, begun + request.timeout_s)
    return PreparedRequest(
        secrets.token_hex(12), served_by(services, loaded, request.model), loaded, encoded, begun, deadline
    )


async def run_operation(services: Services, operation: Operation, body: bytes, deadline: float = math.inf) -> Tokenized:
    """Run /tokenize or /detokenize, which need no group. Raises RequestError."""
    async with deadlines.ending_at(deadline):
        loaded = await services.model_loader.current(asyncio.get_running_loop().time() + services.max_wait_s)
        done = await loaded.pool.run(operation, body)
    served_by(services, loaded, done.model)
    return done


def served_by(services: Services, loaded: LoadedModel, asked: str | None) -> str:
    """The model's name. Raises RequestError 404 when another was asked for."""
    name = services.served_name or loaded.model.name
    if asked is not None and asked != name:
        raise unknown_model(asked, name)
    return name


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
    plan, first_token = prepared.plan, partial(_first_token, services.metrics, prepared.begun)
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
            if index % plan.copies == 0:
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


def _first_token(metrics: RouterMetrics, begun: float) -> None:
    metrics.first_token.observe(asyncio.get_running_loop().time() - begun)
