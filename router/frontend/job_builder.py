"""Builds the jobs and the sinks of one request. Pure but for the seed that is drawn."""

import secrets
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from octavo.router.answers.answer import Answer
from octavo.router.answers.detailed_generation import DetailedGeneration, Details
from octavo.router.answers.formatters.details import DetailOptions
from octavo.router.answers.generation import Generation
from octavo.router.jobs.generation import GRAMMAR, Job, Sampling
from octavo.router.openai_api.openai import ParsedRequest
from octavo.router.openai_api.sampling import PLAIN, AdvancedParams, needs, with_params
from octavo.router.parsers.answer_parser import AnswerParser
from octavo.router.text.bodies import EncodedRequest
from octavo.router.text.tokenizer import NO_MARKS
from octavo.router.tokenizer_pool.model_loader import LoadedModel


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer has beside plain text. parser: makes one for each generation, where reasoning or calls are to be
    found; None: the text is all content. details: which are shown; None: none, and stop strings are cut as usual."""

    parser: Callable[[], AnswerParser] | None = None
    details: DetailOptions | None = None


PLAIN_TEXT = AnswerForm()


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """One request: each of its prompts is answered `extras.n` times."""

    loaded: LoadedModel
    encoded: EncodedRequest

    @property
    def copies(self) -> int:
        return self.encoded.request.params.n

    @property
    def form(self) -> AnswerForm:
        """As the request asks for it."""
        return AnswerForm(self.loaded.formats.parser(self.encoded), self._details_shown())

    def _details_shown(self) -> DetailOptions | None:
        request = self.encoded.request
        params = request.params
        if params is PLAIN or not _is_detailed(request):
            return None
        return DetailOptions(
            names=self.loaded.text.names.__getitem__,
            top=params.logprobs,
            prompt_top=params.prompt_logprobs,
            asked_top=params.prompt_top or 0,
            token_ids=params.token_ids,
        )

    def job(self, index: int, id: str, deadline: float) -> Job:
        """The job of one generation. index: of the generation. deadline: monotonic seconds."""
        request, loaded = self.encoded.request, self.loaded
        params = request.params
        at, copy = divmod(index, params.n)
        prompt = self.encoded.prompts[at]
        room = loaded.model.context_length - len(prompt) // 4
        sampling = with_params(self.sampling(copy), params, loaded.model.features)
        return Job(
            id=f"{id}-{index}",
            prompt=prompt,
            sampling=sampling,
            max_tokens=room if request.max_tokens is None else max(1, request.max_tokens),
            stop_ids=request.stop_ids,
            ignore_eos=request.ignore_eos,
            priority=-params.priority,
            deadline=deadline,
            fingerprint=loaded.model.fingerprint,
            min_tokens=params.min_tokens,
            salt=bytes.fromhex(params.salt),
            needs=needs(sampling, params) | ({GRAMMAR} if self.encoded.grammar else set()),
            grammar=self.encoded.grammar,
            grammar_field=self.encoded.grammar_field,
        )

    def sampling(self, copy: int) -> Sampling:
        """The request wins over the model's own defaults. Copies of one prompt have seeds of their own."""
        request, default = self.encoded.request, self.loaded.text.sampling
        seed = secrets.randbits(63) if request.seed is None else (request.seed + copy) & (2**64 - 1)
        return Sampling(
            default.temperature if request.temperature is None else request.temperature,
            default.top_k if request.top_k is None else request.top_k,
            default.top_p if request.top_p is None else request.top_p,
            seed,
            default.adjust,
        )

    def generation(self, index: int, answer: Answer, form: AnswerForm) -> Generation:
        """The sink of the job with this index."""
        request = self.encoded.request
        at = index // request.params.n
        prompt, skip = self.encoded.prompts[at], request.params.skip_special
        marks = self.loaded.formats.marks if form.parser is not None else NO_MARKS
        detokeniser = partial(self.loaded.text.detokeniser, prompt, skip, marks)
        if form.details is None:
            return answer.join(Generation(answer, detokeniser, request.stop))
        return answer.join(DetailedGeneration(answer, detokeniser, request.stop, self._details(at, prompt)))

    def _details(self, at: int, prompt: bytes) -> Details:
        request = self.encoded.request
        params = request.params
        return Details(
            reader=partial(self.loaded.text.detokeniser, b"", params.skip_special),
            echo=self.encoded.echoes[at] if params.echo else None,
            first_id=array("I", prompt[:4])[0],
            prompt_ids=tuple(array("I", prompt)) if params.token_ids else None,
            top=params.logprobs,
            prompt_top=params.prompt_top,
            prompt_table=params.prompt_logprobs is not None,
            min_tokens=params.min_tokens,
            include_stop=params.include_stop,
            continuous_usage=params.continuous_usage,
            drop=request.max_tokens == 0,
        )


def _is_detailed(request: ParsedRequest) -> bool:
    params: AdvancedParams = request.params
    stops = bool(request.stop) and (params.include_stop or params.min_tokens > 0)
    scores = params.logprobs is not None or params.prompt_logprobs is not None
    return stops or scores or params.echo or params.token_ids or params.continuous_usage
