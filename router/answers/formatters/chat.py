"""Answers of /v1/chat/completions."""

from collections.abc import Sequence

import orjson

from octavo.router.answers.delta import Delta, Usage
from octavo.router.answers.formatters.chunks import ChunkFormatter
from octavo.router.answers.formatters.details import DetailOptions
from octavo.router.answers.formatters.formatter import Choice, Identity
from octavo.router.answers.formatters.message_parts import content_of, message, part_body
from octavo.router.text.logprobs import Body, chat_body


class ChatFormatter(ChunkFormatter):
    """A generation's first chunk names the role, its last one the reason."""

    def __init__(self, identity: Identity, details: DetailOptions | None, with_usage: bool) -> None:
        super().__init__(identity, ("chat.completion", "chat.completion.chunk"), details, with_usage)
        self._chunk_end = b',"logprobs":null,"finish_reason":null}' + self._after
        self._text_end = b"}" + self._chunk_end

    def first(self, index: int) -> bytes:
        return b'%b%d,"delta":{"role":"assistant","content":""}%b' % (self._before, index, self._chunk_end)

    def text(self, index: int, text: str) -> bytes:
        return b'%b%d,"delta":{"content":%b%b' % (self._before, index, orjson.dumps(text), self._text_end)

    def delta(self, index: int, delta: Delta) -> bytes:
        """A chunk for each part of the message; the first one carries the details of the tokens."""
        if delta.parts is None:
            bodies: list[Body] = [{"content": delta.text}]
        else:
            bodies = [body for part in delta.parts if (body := part_body(part)) is not None]
            if not bodies and (delta.entries or (delta.ids and self._ids(delta))):
                bodies = [{}]
        others = Delta(usage=delta.usage)
        return b"".join(
            [self._chunk(index, delta if at == 0 else others, body, None) for at, body in enumerate(bodies)]
        )

    def finish(self, index: int, delta: Delta, reason: str) -> bytes:
        last = b"" if delta.is_empty else self.delta(index, delta)
        return last + self._chunk(index, Delta(usage=delta.usage), {}, reason)

    def _chunk(self, index: int, delta: Delta, body: Body, reason: str | None) -> bytes:
        logprobs = self._logprobs(delta, chat_body, streamed=True)
        choice: Body = {"index": index, "delta": body, "logprobs": logprobs, "finish_reason": reason}
        return self._event(choice, delta, {} if delta.prompt_ids is None else {"prompt_token_ids": delta.prompt_ids})

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The prompt's details are the body's, as in vLLM."""
        of_prompt: Body = {}
        if self._details is not None:
            for choice in choices:
                of_prompt |= self._details.of_prompt(choice.delta)
        return self._body([self._choice(choice) for choice in choices], usage, of_prompt)

    def _choice(self, choice: Choice) -> Body:
        delta = choice.delta
        content = delta.text if delta.parts is None else content_of(delta.parts)
        more = {} if delta.parts is None else message(delta.parts, content)
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": content, "refusal": None, **more},
            "logprobs": self._logprobs(delta, chat_body, streamed=False),
            "finish_reason": choice.finish_reason,
            **self._ids(delta),
        }
