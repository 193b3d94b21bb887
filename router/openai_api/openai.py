"""Parses OpenAI requests: a JSON body becomes a `ParsedRequest`, or a RequestError that names the field.

Only what works is accepted: a field that would change the answer and that we do not serve is refused unless it has
its neutral value (`n: 1`, `tools: null`), so that no client gets another answer than it requested.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.chat import DEFAULT_RENDERING, Rendering, rendering
from octavo.router.openai_api.fields import Fields, invalid, unsupported
from octavo.router.openai_api.known_fields import MAX_TIMEOUT_S, MIN_TIMEOUT_S, unknown_fields
from octavo.router.openai_api.messages import Message, messages
from octavo.router.openai_api.options import NAMES, PLAIN, RequestOptions
from octavo.router.openai_api.options import parse as parse_options
from octavo.router.openai_api.prompts import Prompt, prompts
from octavo.router.openai_api.sampling import COMMON as SAMPLED
from octavo.router.openai_api.sampling import RARE, common, rare
from octavo.router.openai_api.stop_conditions import max_tokens, stop, stop_ids
from octavo.router.openai_api.structured import NAMES as STRUCTURED
from octavo.router.openai_api.structured import Structured, check_end, structured
from octavo.router.openai_api.tools.definitions import OfferedTools, ToolUse, offer
from octavo.shared.sampling_params import SamplingParams

Kind = Literal["completion", "chat", "response"]

# Accepted, without effect on the answer.
HARMLESS = frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention request_id "
    "session_id".split()
)

# Not served: accepted with a value that asks for nothing.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # Any: values of any JSON type
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "top_logprobs": (),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "spaces_between_special_tokens": (True, False),
    "add_special_tokens": (),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "web_search_options": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "documents": ([],),
}
COMMON = frozenset("model max_tokens stop stop_token_ids ignore_eos stream stream_options".split()) | SAMPLED
CHAT = frozenset(
    "messages max_completion_tokens tools tool_choice parallel_tool_calls documents chat_template_kwargs "
    "reasoning_effort add_generation_prompt continue_final_message".split()
)
KNOWN: Mapping[Kind, frozenset[str]] = {
    "completion": COMMON | RARE["completion"] | NAMES["completion"] | STRUCTURED | {"prompt"},
    "chat": COMMON | RARE["chat"] | NAMES["chat"] | STRUCTURED | CHAT,
}
# Fields that are read only where a request has one of them.
FEW: Mapping[Kind, frozenset[str]] = {
    "completion": RARE["completion"] | NAMES["completion"],
    "chat": RARE["chat"] | NAMES["chat"],
}


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A valid request. max_tokens None: the rest of the context; 0: the prompt alone is echoed.

    given: fields of `sampling` that the request has; for others it has the model's default, and a seed that is drawn.
    timeout_s: for the whole answer. unknown: names of fields that were ignored. echo: fields that a `response` repeats.
    rendering, tool_use: of chats. tool_use None: no calls are looked for in the answer.
    """

    kind: Kind
    model: str | None = None
    prompts: tuple[Prompt, ...] = ()
    messages: tuple[Message, ...] = ()
    max_tokens: int | None = None
    sampling: SamplingParams = SamplingParams()  # noqa: RUF009
    given: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    options: RequestOptions = PLAIN
    structured: Structured | None = None
    timeout_s: float | None = None
    unknown: tuple[str, ...] = ()
    echo: Mapping[str, object] | None = None
    rendering: Rendering = DEFAULT_RENDERING
    tool_use: ToolUse | None = None


def parse(kind: Kind, body: object, fields_of: Callable[[Mapping[str, object]], Fields] = Fields) -> ParsedRequest:
    """Check every field of a decoded JSON body. Raises RequestError 400. fields_of: how they are read."""
    if not isinstance(body, dict):
        raise invalid(None, "the body must be a JSON object")
    fields = fields_of(body)
    unknown = unknown_fields(body, KNOWN[kind], HARMLESS, NEUTRAL)
    stream = fields.flag("stream")
    most = max_tokens(kind, fields)
    include_usage, continuous = _stream_options(fields, stream)
    few = not FEW[kind].isdisjoint(body)
    options = parse_options(kind, fields, stream) if few else PLAIN
    sampling = common(fields) | (rare(kind, fields, options, most) if few else {})
    offered = offer(fields) if kind == "chat" else OfferedTools()
    if offered.use is not None and offered.use.bound:
        check_end(body, "tool_choice" if offered.use.must else "tools")
    return ParsedRequest(
        kind=kind,
        model=fields.text("model"),
        prompts=prompts(fields.get("prompt")) if kind == "completion" else (),
        messages=messages(fields.get("messages")) if kind == "chat" else (),
        max_tokens=most,
        sampling=SamplingParams(**sampling),
        given=tuple(sampling),
        stop=stop(fields.get("stop")),
        stop_ids=stop_ids(fields.get("stop_token_ids")),
        ignore_eos=fields.flag("ignore_eos"),
        stream=stream,
        include_usage=include_usage,
        options=replace(options, continuous_usage=True) if continuous else options,
        structured=structured(body),
        timeout_s=fields.number("timeout", MIN_TIMEOUT_S, MAX_TIMEOUT_S),
        unknown=unknown,
        rendering=rendering(fields, offered.tools) if kind == "chat" else DEFAULT_RENDERING,
        tool_use=offered.use,
    )


def _stream_options(fields: Fields, stream: bool) -> tuple[bool, bool]:
    """Whether the last event has the usage, and whether every one has."""
    options = fields.get("stream_options")
    if options is None:
        return False, False
    if not isinstance(options, dict):
        raise invalid("stream_options", "stream_options must be an object")
    if not stream:
        raise invalid("stream_options", "stream_options is only allowed with stream: true")
    inner = Fields(options, "stream_options.")
    for name in options:
        if name not in ("include_usage", "continuous_usage_stats", "include_obfuscation"):
            raise unsupported(f"stream_options.{name}"[:96], f"unknown field stream_options.{name[:64]}: remove it")
    inner.flag("include_obfuscation")
    include_usage, continuous = inner.flag("include_usage"), inner.flag("continuous_usage_stats")
    if continuous and not include_usage:
        raise invalid("stream_options.continuous_usage_stats", "continuous_usage_stats needs include_usage: true")
    return include_usage, continuous


def error_body(error: RequestError) -> dict[str, object]:
    """OpenAI's error object."""
    return {
        "error": {"message": error.message, "type": error.type, "param": error.field, "code": error.code},
    }
