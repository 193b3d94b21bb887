"""What completions and chats have in common: a stream of chunks, of which only some of each is new; and a body."""

from collections.abc import Sequence

import orjson

from octavo.router.answers.delta import Delta, Usage
from octavo.router.answers.formatters.details import DetailOptions, RenderLogprobs, usage_body
from octavo.router.answers.formatters.formatter import Identity
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.openai import error_body
from octavo.router.text.logprobs import Body

DONE = b"data: [DONE]\n\n"


class ChunkFormatter:
    """details: None: plain text, and parts of messages. with_usage: the last event carries it, the others say `null`
    or, in a piece with usage, that."""

    def __init__(
        self, identity: Identity, kinds: tuple[str, str], details: DetailOptions | None, with_usage: bool
    ) -> None:
        """kinds: `object` of a body, and of a chunk."""
        self._identity = identity
        self._kind, self._chunk_kind = kinds
        self._details = details
        self._with_usage = with_usage
        start = orjson.dumps(self._head(self._chunk_kind))
        self._start = b"data: " + start[:-1] + b',"choices":['
        self._before = self._start + b'{"index":'
        self._after = b'],"usage":null}\n\n' if with_usage else b"]}\n\n"

    def end(self, usage: Usage) -> bytes:
        if not self._with_usage:
            return DONE
        return self._start + b'],"usage":' + orjson.dumps(usage_body(usage)) + b"}\n\n" + DONE

    def error(self, error: RequestError) -> bytes:
        return b"data: " + orjson.dumps(error_body(error)) + b"\n\n"

    def _event(self, choice: Body, delta: Delta, more: Body) -> bytes:
        """One chunk of one choice. delta: whose ids and usage it shows; more: of the event."""
        event: Body = {**self._head(self._chunk_kind), "choices": [choice | self._ids(delta)], **more}
        if self._with_usage:
            event["usage"] = usage_body(delta.usage) if delta.usage is not None else None
        return b"data: " + orjson.dumps(event) + b"\n\n"

    def _body(self, choices: Sequence[Body], usage: Usage, more: Body) -> bytes:
        return orjson.dumps({**self._head(self._kind), "choices": choices, **more, "usage": usage_body(usage)})

    def _head(self, kind: str) -> Body:
        identity = self._identity
        return {"id": identity.id, "object": kind, "created": identity.created, "model": identity.model}

    def _ids(self, delta: Delta) -> Body:
        return {"token_ids": delta.ids} if self._details is not None and self._details.token_ids else {}

    def _logprobs(self, delta: Delta, render: RenderLogprobs, streamed: bool) -> Body | None:
        """A chunk without tokens says null; a body has lists all the same, perhaps empty ones."""
        if self._details is None or (streamed and not delta.entries):
            return None
        return self._details.logprobs(delta.entries, render)
