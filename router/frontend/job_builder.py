"""Builds the jobs and the sinks of one request. Pure but for the seed that is drawn."""

import secrets
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from octavo.router.answers.answers import Answer, Generation, Outlet
from octavo.router.answers.detailed import DetailedGeneration, Details
from octavo.router.answers.detailed_answers import DetailedStream, DetailedWhole
from octavo.router.answers.detailed_frames import Form
from octavo.router.answers.parsed_answers import ParsedStream, ParsedWhole
from octavo.router.answers.parsed_details import ParsedDetailedStream, ParsedDetailedWhole
from octavo.router.jobs.generation import GRAMMAR, Job, Sampling
from octavo.router.openai_api.openai import Ask
from octavo.router.openai_api.sampling import PLAIN, Extras, needs, with_extras
from octavo.router.parsers.answer_parser import AnswerParser
from octavo.router.text.bodies import Prepared
from octavo.router.text.tokenizer import NO_MARKS
from octavo.router.tokenizer_pool.model_loader import Loaded

_PARSED = ParsedWhole | ParsedStream | ParsedDetailedWhole | ParsedDetailedStream


@dataclass(frozen=True, slots=True)
class Plan:
    """One request: each of its prompts is answered `extras.n` times."""

    loaded: Loaded
    prepared: Prepared

    @property
    def copies(self) -> int:
        return self.prepared.ask.extras.n

    @property
    def form(self) -> Form | None:
        """Which details are shown beside the text; None: no details, and stop strings are cut as usual."""
        ask = self.prepared.ask
        extras = ask.extras
        if extras is PLAIN or not _is_detailed(ask):
            return None
        return Form(
            names=self.loaded.text.names.__getitem__,
            top=extras.logprobs,
            prompt_top=extras.prompt_logprobs,
            asked_top=extras.prompt_top or 0,
            token_ids=extras.token_ids,
            usage=ask.include_usage,
        )

    @property
    def parser(self) -> Callable[[], AnswerParser] | None:
        """Makes one for each answer; None where the text is all content."""
        return self.loaded.formats.parser(self.prepared)

    def job(self, index: int, id: str, deadline: float) -> Job:
        """The job of one generation. index: of the generation. deadline: monotonic seconds."""
        ask, loaded = self.prepared.ask, self.loaded
        extras = ask.extras
        at, copy = divmod(index, extras.n)
        prompt = self.prepared.prompts[at]
        room = loaded.model.context_length - len(prompt) // 4
        sampling = with_extras(self.sampling(copy), extras, loaded.model.features)
        return Job(
            id=f"{id}-{index}",
            prompt=prompt,
            sampling=sampling,
            max_tokens=room if ask.max_tokens is None else max(1, ask.max_tokens),
            stop_ids=ask.stop_ids,
            ignore_eos=ask.ignore_eos,
            priority=-extras.priority,
            deadline=deadline,
            fingerprint=loaded.model.fingerprint,
            min_tokens=extras.min_tokens,
            salt=bytes.fromhex(extras.salt),
            needs=needs(sampling, extras) | ({GRAMMAR} if self.prepared.grammar else set()),
            grammar=self.prepared.grammar,
            grammar_field=self.prepared.grammar_field,
        )

    def sampling(self, copy: int) -> Sampling:
        """The request wins over the model's own defaults. Copies of one prompt have seeds of their own."""
        ask, default = self.prepared.ask, self.loaded.text.sampling
        seed = secrets.randbits(63) if ask.seed is None else (ask.seed + copy) & (2**64 - 1)
        return Sampling(
            default.temperature if ask.temperature is None else ask.temperature,
            default.top_k if ask.top_k is None else ask.top_k,
            default.top_p if ask.top_p is None else ask.top_p,
            seed,
            default.adjust,
        )

    def generation(self, index: int, answer: Answer, outlet: Outlet) -> Generation:
        """The sink of the job with this index."""
        ask = self.prepared.ask
        at = index // ask.extras.n
        prompt, skip = self.prepared.prompts[at], ask.extras.skip_special
        marks = self.loaded.formats.marks if isinstance(outlet, _PARSED) else NO_MARKS
        detokeniser = partial(self.loaded.text.detokeniser, prompt, skip, marks)
        if not isinstance(outlet, DetailedWhole | DetailedStream):
            return answer.generation(detokeniser, ask.stop)
        details = self._details(at, prompt)
        return answer.join(DetailedGeneration(answer, detokeniser, ask.stop, details, outlet))

    def _details(self, at: int, prompt: bytes) -> Details:
        ask = self.prepared.ask
        extras = ask.extras
        return Details(
            reader=partial(self.loaded.text.detokeniser, b"", extras.skip_special),
            echo=self.prepared.echoes[at] if extras.echo else None,
            first_id=array("I", prompt[:4])[0],
            prompt_ids=tuple(array("I", prompt)) if extras.token_ids else None,
            top=extras.logprobs,
            prompt_top=extras.prompt_top,
            prompt_table=extras.prompt_logprobs is not None,
            min_tokens=extras.min_tokens,
            include_stop=extras.include_stop,
            continuous_usage=extras.continuous_usage,
            drop=ask.max_tokens == 0,
        )


def _is_detailed(ask: Ask) -> bool:
    extras: Extras = ask.extras
    stops = bool(ask.stop) and (extras.include_stop or extras.min_tokens > 0)
    scores = extras.logprobs is not None or extras.prompt_logprobs is not None
    return stops or scores or extras.echo or extras.token_ids or extras.continuous_usage
