"""Answers of /v1/completions."""

from collections.abc import Sequence

import orjson

from octavo.router.answers.delta import Delta, Usage
from octavo.router.answers.formatters.chunks import ChunkFormatter
from octavo.router.answers.formatters.details import DetailOptions
from octavo.router.answers.formatters.formatter import Choice, Identity
from octavo.router.text.logprobs import Body, completion_body


class CompletionFormatter(ChunkFormatter):
    """A generation's last text travels with its reason."""

    def __init__(self, identity: Identity, details: DetailOptions | None, with_usage: bool) -> None:
        super().__init__(identity, ("text_completion", "text_completion"), details, with_usage)
        self._text_end = b',"logprobs":null,"finish_reason":null}' + self._after

    def first(self, index: int) -> bytes:
        return b""

    def text(self, index: int, text: str) -> bytes:
        return b'%b%d,"text":%b%b' % (self._before, index, orjson.dumps(text), self._text_end)

    def delta(self, index: int, delta: Delta) -> bytes:
        return self._chunk(index, delta, None)

    def finish(self, index: int, delta: Delta, reason: str) -> bytes:
        return self._chunk(index, delta, reason)

    def _chunk(self, index: int, delta: Delta, reason: str | None) -> bytes:
        choice: Body = {"index": index, "text": delta.text}
        if delta.prompt_ids is not None:
            choice["prompt_token_ids"] = delta.prompt_ids
        choice |= {"logprobs": self._logprobs(delta, completion_body, streamed=True), "finish_reason": reason}
        return self._event(choice, delta, {})

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        return self._body([self._choice(choice) for choice in choices], usage, {})

    def _choice(self, choice: Choice) -> Body:
        delta = choice.delta
        shown: Body = {
            "index": choice.index,
            "text": delta.text,
            "logprobs": self._logprobs(delta, completion_body, streamed=False),
            "finish_reason": choice.finish_reason,
            **self._ids(delta),
        }
        return shown if self._details is None else shown | self._details.of_prompt(delta)
