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
from octavo.router.jobs.generation import GRAMMAR, Job
from octavo.router.openai_api.openai import ParsedRequest
from octavo.router.openai_api.sampling import MODEL_DEFAULTS, unset_defaults
from octavo.router.parsers.answer_parser import AnswerParser
from octavo.router.text.bodies import EncodedRequest
from octavo.router.text.tokenizer import NO_MARKS
from octavo.router.tokenizer_pool.model_loader import LoadedModel
from octavo.shared.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer has beside plain text. parser: makes one for each generation, where reasoning or calls are to be
    found; None: the text is all content. details: which are shown; None: none, and stop strings are cut as usual."""

    parser: Callable[[], AnswerParser] | None = None
    details: DetailOptions | None = None


PLAIN_TEXT = AnswerForm()


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """One request: each of its prompts is answered `options.n` times. is_retokenised: it has been let into the queue
    before, tokenised for another model."""

    loaded: LoadedModel
    encoded: EncodedRequest
    is_retokenised: bool = False

    @property
    def copies(self) -> int:
        return self.encoded.request.options.n

    @property
    def form(self) -> AnswerForm:
        """As the request asks for it."""
        return AnswerForm(self.loaded.formats.parser(self.encoded), self._details_shown())

    def _details_shown(self) -> DetailOptions | None:
        request = self.encoded.request
        if not _is_detailed(request):
            return None
        sampling, options = request.sampling, request.options
        return DetailOptions(
            names=self.loaded.text.names.__getitem__,
            top=sampling.logprobs,
            prompt_top=options.prompt_table,
            asked_top=sampling.prompt_logprobs or 0,
            token_ids=options.token_ids,
        )

    def job(self, index: int, id: str, deadline: float) -> Job:
        """The job of one generation. index: of the generation. deadline: monotonic seconds."""
        request, loaded = self.encoded.request, self.loaded
        options = request.options
        at, copy = divmod(index, options.n)
        prompt = self.encoded.prompts[at]
        known = len(prompt) // 4
        room = loaded.model.context_length - known
        sampling = self.sampling(copy)
        features = sampling.features
        optional = frozenset(name for name in features if name in MODEL_DEFAULTS and name not in request.given)
        needs = frozenset(features) - optional
        wanted = max(1, request.max_tokens or 1, sampling.min_tokens)
        return Job(
            id=f"{id}-{index}",
            prompt=prompt,
            sampling=sampling,
            max_tokens=room if request.max_tokens is None else max(1, request.max_tokens),
            stop_ids=request.stop_ids,
            ignore_eos=request.ignore_eos,
            priority=-options.priority,
            deadline=deadline,
            digest=loaded.model.digest,
            salt=bytes.fromhex(options.salt),
            needs=needs | {GRAMMAR} if self.encoded.grammar else needs,
            optional=optional,
            min_context=known + wanted,
            grammar=self.encoded.grammar,
            grammar_field=self.encoded.grammar_field,
            readmitted=self.is_retokenised,
        )

    def sampling(self, copy: int) -> SamplingParams:
        """The request wins over the model's own defaults. Copies of one prompt have seeds of their own."""
        request, loaded = self.encoded.request, self.loaded
        seed = (request.sampling.seed + copy) % 2**64 if "seed" in request.given else secrets.randbits(63)
        defaults = unset_defaults(loaded.text.sampling, request.given, loaded.model.features)
        return request.sampling.replaced(seed=seed, **defaults)

    def generation(self, index: int, answer: Answer, form: AnswerForm) -> Generation:
        """The sink of the job with this index."""
        request = self.encoded.request
        at = index // request.options.n
        prompt, skip = self.encoded.prompts[at], request.options.skip_special
        marks = self.loaded.formats.marks if form.parser is not None else NO_MARKS
        detokeniser = partial(self.loaded.text.detokeniser, prompt, skip, marks)
        if form.details is None:
            return answer.join(Generation(answer, detokeniser, request.stop))
        return answer.join(DetailedGeneration(answer, detokeniser, request.stop, self._details(at, prompt)))

    def _details(self, at: int, prompt: bytes) -> Details:
        request = self.encoded.request
        sampling, options = request.sampling, request.options
        return Details(
            reader=partial(self.loaded.text.detokeniser, b"", options.skip_special),
            echo=self.encoded.echoes[at] if options.echo else None,
            first_id=array("I", prompt[:4])[0],
            prompt_ids=tuple(array("I", prompt)) if options.token_ids else None,
            top=sampling.logprobs,
            prompt_top=sampling.prompt_logprobs,
            prompt_table=options.prompt_table is not None,
            min_tokens=sampling.min_tokens,
            include_stop=options.include_stop,
            continuous_usage=options.continuous_usage,
            drop=request.max_tokens == 0,
        )


def _is_detailed(request: ParsedRequest) -> bool:
    sampling, options = request.sampling, request.options
    stops = bool(request.stop) and (options.include_stop or sampling.min_tokens > 0)
    scores = sampling.logprobs is not None or options.prompt_table is not None
    return stops or scores or options.echo or options.token_ids or options.continuous_usage
