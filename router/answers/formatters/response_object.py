"""The object of /v1/responses in each of its states, and the items of its output as they grow. Pure.

    message    output_item.added  content_part.added  output_text.delta *
               output_text.done  content_part.done  output_item.done
    call       output_item.added  function_call_arguments.delta *
               function_call_arguments.done  output_item.done

One item is open at a time: what is of another kind, or the end, closes it.
"""

from collections.abc import Mapping, Sequence

from octavo.router.answers.delta import Usage
from octavo.router.answers.formatters.formatter import Identity, Json
from octavo.router.jobs.generation import RequestError
from octavo.router.parsers.answer_parser import Arguments, Call, Dropped, MessagePart
from octavo.router.parsers.tools.events import Content

ResponseEvent = tuple[str, Json]  # type, and the other fields

# Of OpenAI's codes, the one that fits; the message says more.
FAILURES = {429: "rate_limit_exceeded"}


class ResponseObject:
    """One response in each of its states. echo: fields of the request that it repeats."""

    def __init__(self, identity: Identity, echo: Mapping[str, object]) -> None:
        self.key = identity.id.partition("_")[2]
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

    def ended(self, output: Sequence[Json], reason: str, usage: Usage) -> Json:
        status = status_of(reason)
        why = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return self._state(status, output, why=why, usage=_usage(usage))

    def failed(self, output: Sequence[Json], error: RequestError) -> Json:
        return self._state(
            "failed", output, error={"code": FAILURES.get(error.status, "server_error"), "message": error.message}
        )

    def _state(
        self,
        status: str,
        output: Sequence[Json],
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


class OutputItems:
    """The items of one answer. Each method returns the events that it makes. done: the complete items, without
    abandoned calls. place: ids of the open message's deltas; None: no message is open."""

    def __init__(self, key: str) -> None:
        """key: makes the items' ids."""
        self.done: list[Json] = []
        self.place: Json | None = None
        self._key = key
        self._count = 0  # items so far: the index of the next
        self._call: Call | None = None  # that is open
        self._pieces: list[str] = []  # of the open item

    def part(self, part: MessagePart) -> list[ResponseEvent]:
        """Reasoning is not shown."""
        if isinstance(part, Content):
            return self.text(part.text)
        if isinstance(part, Call):
            return self._begin_call(part)
        if isinstance(part, Arguments):
            self._pieces.append(part.text)
            return [("response.function_call_arguments.delta", {**self._here(), "delta": part.text})]
        if isinstance(part, Dropped):
            return self._end("incomplete", stands=False)
        return []

    def text(self, text: str) -> list[ResponseEvent]:
        """Some more of a message, which begins unless one is open."""
        events = self.begin_message()
        self.add(text)
        assert self.place is not None, "it has begun"
        return [*events, ("response.output_text.delta", {**self.place, "logprobs": [], "delta": text})]

    def add(self, text: str) -> None:
        """To the open message, without an event."""
        self._pieces.append(text)

    def begin_message(self) -> list[ResponseEvent]:
        if self.place is not None:
            return []
        events = self._end("completed")
        self.place = {**self._here(), "content_index": 0}
        return [
            *events,
            ("response.output_item.added", self._item(self._message([], "in_progress"))),
            ("response.content_part.added", {**self.place, "part": _part("")}),
        ]

    def finish(self, status: str) -> list[ResponseEvent]:
        """The answer has ended: an answer without anything is an empty message."""
        events = self.begin_message() if not self._count and self._call is None else []
        return events + self._end(status)

    def cut(self) -> None:
        """The answer has failed: what is open stays as it is."""
        self._end("incomplete")

    def _begin_call(self, call: Call) -> list[ResponseEvent]:
        events = self._end("completed")
        self._call = call
        return [*events, ("response.output_item.added", self._item(self._function_call(call, "in_progress")))]

    def _end(self, status: str, stands: bool = True) -> list[ResponseEvent]:
        if self._call is not None:
            item = self._function_call(self._call, status)
            done = {**self._here(), "name": item["name"], "arguments": item["arguments"]}
            events: list[ResponseEvent] = [("response.function_call_arguments.done", done)]
        elif self.place is not None:
            text = "".join(self._pieces)
            item = self._message([_part(text)], status)
            events = [
                ("response.output_text.done", {**self.place, "logprobs": [], "text": text}),
                ("response.content_part.done", {**self.place, "part": _part(text)}),
            ]
        else:
            return []
        events.append(("response.output_item.done", self._item(item)))
        if stands:
            self.done.append(item)
        self._call, self.place, self._pieces = None, None, []
        self._count += 1
        return events

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._key}_{self._count}" if self._count else f"{kind}_{self._key}"

    def _here(self) -> Json:
        return {"item_id": self._id("msg" if self._call is None else "fc"), "output_index": self._count}

    def _item(self, item: Json) -> Json:
        return {"output_index": self._count, "item": item}

    def _message(self, content: Sequence[Json], status: str) -> Json:
        return {
            "id": self._id("msg"), "type": "message", "status": status, "role": "assistant", "content": content
        }  # fmt: skip

    def _function_call(self, call: Call, status: str) -> Json:
        arguments = "".join(self._pieces)
        function = {"call_id": call.id, "name": call.name, "arguments": arguments}
        return {"id": self._id("fc"), "type": "function_call", "status": status, **function}


def status_of(reason: str) -> str:
    return "incomplete" if reason == "length" else "completed"


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
