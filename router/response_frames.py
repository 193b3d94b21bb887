"""Answers of /v1/responses: one object, or the typed events that build it up.

    created  in_progress  output_item.added  content_part.added  output_text.delta *
    output_text.done  content_part.done  output_item.done  completed | incomplete          failed, at any point

Each event has its name twice, in the event line and as `type`, and the next sequence number. The last one holds the
whole answer, and no [DONE] follows.
"""

from collections.abc import Mapping

import orjson

from octavo.router.frames import Identity, Usage
from octavo.router.generation import RequestError
from octavo.router.plain_answers import Whole

Json = dict[str, object]

# Of OpenAI's codes, the one that fits; the message says more.
FAILURES = {429: "rate_limit_exceeded"}


class ResponseObject:
    """The answer's object in each of its states. echo: fields of the request that it says again."""

    def __init__(self, identity: Identity, echo: Mapping[str, object]) -> None:
        self.item_id = "msg_" + identity.id.partition("_")[2]
        self._always: Json = {
            "id": identity.id,
            "object": "response",
            "created_at": identity.created,
            "background": False,
            "max_tool_calls": None,
            "model": identity.model,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "truncation": "disabled",
            **echo,
        }

    def begun(self) -> Json:
        return self._state("in_progress", [])

    def ended(self, text: str, reason: str, usage: Usage) -> Json:
        status = _status(reason)
        why = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return self._state(status, [self.item(text, status)], why=why, usage=_usage(usage))

    def failed(self, text: str, error: RequestError) -> Json:
        told = {"code": FAILURES.get(error.status, "server_error"), "message": error.message}
        return self._state("failed", [self.item(text, "incomplete")] if text else [], error=told)

    def item(self, text: str | None, status: str) -> Json:
        """The message; text None: it has no part yet."""
        content = [] if text is None else [part(text)]
        return {"id": self.item_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _state(
        self,
        status: str,
        output: list[Json],
        error: Mapping[str, str] | None = None,
        why: Mapping[str, str] | None = None,
        usage: Json | None = None,
    ) -> Json:
        return self._always | {
            "status": status,
            "output": output,
            "error": error,
            "incomplete_details": why,
            "usage": usage,
        }


class ResponseWriter:
    """The events of one stream: what FrameWriter is for chats and completions."""

    def __init__(self, response: ResponseObject) -> None:
        self._response = response
        self._count = 0
        self._pieces: list[str] = []
        self._reason = ""
        self._place: Json = {"item_id": response.item_id, "output_index": 0, "content_index": 0}
        # A delta is written for each token: all of it but the text and the number is made once.
        kind = "response.output_text.delta"
        head = orjson.dumps({"type": kind} | self._place | {"logprobs": []})[:-1]
        self._delta = f"event: {kind}\ndata: ".encode() + head + b',"sequence_number":'

    def first(self, index: int) -> bytes:
        begun = self._response.begun()
        item = {"output_index": 0, "item": self._response.item(None, "in_progress")}
        return (
            self._event("response.created", {"response": begun})
            + self._event("response.in_progress", {"response": begun})
            + self._event("response.output_item.added", item)
            + self._event("response.content_part.added", self._place | {"part": part("")})
        )

    def text(self, index: int, text: str) -> bytes:
        self._pieces.append(text)
        number = self._count
        self._count += 1
        return b'%b%d,"delta":%b}\n\n' % (self._delta, number, orjson.dumps(text))

    def delta(self, index: int, delta: Mapping[str, object]) -> bytes:
        """Reasoning is not shown."""
        content = delta.get("content")
        return self.text(index, content) if isinstance(content, str) else b""

    def finish(self, index: int, text: str, reason: str) -> bytes:
        last = self.text(index, text) if text else b""
        self._reason = reason
        whole = "".join(self._pieces)
        item = {"output_index": 0, "item": self._response.item(whole, _status(reason))}
        return (
            last
            + self._event("response.output_text.done", self._place | {"text": whole, "logprobs": []})
            + self._event("response.content_part.done", self._place | {"part": part(whole)})
            + self._event("response.output_item.done", item)
        )

    def end(self, usage: Usage) -> bytes:
        whole = self._response.ended("".join(self._pieces), self._reason, usage)
        return self._event(f"response.{whole['status']}", {"response": whole})

    def error(self, error: RequestError) -> bytes:
        return self._event("response.failed", {"response": self._response.failed("".join(self._pieces), error)})

    def _event(self, kind: str, body: Json) -> bytes:
        number = self._count
        self._count += 1
        data = orjson.dumps({"type": kind, "sequence_number": number} | body)
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


class WholeResponse(Whole):
    """Collects, as for the other endpoints; only the body is another."""

    def __init__(self, identity: Identity, response: ResponseObject) -> None:
        super().__init__(identity)
        self._response = response

    def end(self, usage: Usage) -> None:
        (choice,) = self._choices
        self.body = orjson.dumps(self._response.ended(choice.text, choice.finish_reason, usage))


def part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(reason: str) -> str:
    return "incomplete" if reason == "length" else "completed"


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
