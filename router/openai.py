"""What clients ask, in OpenAI's words: a JSON body becomes an `Ask`, or a RequestError that names the field.

Only what works is accepted: a field that would change the answer and that we do not serve is refused unless it has
its neutral value (`n: 1`, `tools: null`), so that nobody gets another answer than the one asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from octavo.router.chat import AS_IT_IS, Rendering, rendering
from octavo.router.fields import Fields, invalid, unsupported
from octavo.router.generation import RequestError
from octavo.router.known import MAX_TIMEOUT_S, MIN_TIMEOUT_S, unknown_fields
from octavo.router.messages import Message, messages
from octavo.router.sampling import NAMES, PLAIN, Extras
from octavo.router.sampling import parse as parse_extras
from octavo.router.structured import NAMES as STRUCTURED
from octavo.router.structured import Structured, structured
from octavo.router.tools.definitions import Offer, ToolUse, offer

Kind = Literal["completion", "chat", "response"]
Prompt = str | list[int]

MAX_PROMPTS = 256
MAX_IDS = 1_000_000  # in one request
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_STOP_IDS = 64
HIGHEST_ID = 2**32 - 2  # 0xFFFFFFFF means "no token" between router and engine

# Said but without effect on the answer.
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
    "priority": (0,),
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
COMMON = frozenset(
    "model max_tokens temperature top_p top_k seed stop stop_token_ids ignore_eos stream stream_options".split()
)
CHAT = frozenset(
    "messages max_completion_tokens tools tool_choice parallel_tool_calls documents chat_template_kwargs "
    "reasoning_effort add_generation_prompt continue_final_message".split()
)
KNOWN: Mapping[Kind, frozenset[str]] = {
    "completion": COMMON | NAMES["completion"] | STRUCTURED | {"prompt"},
    "chat": COMMON | NAMES["chat"] | STRUCTURED | CHAT,
}


@dataclass(frozen=True, slots=True)
class Ask:
    """A valid request. None: max_tokens: the rest of the context; seed: drawn; the others: the model's default.

    max_tokens 0: the prompt alone is echoed. timeout_s: for the whole answer. unknown: names of fields that were
    ignored. echo: what a `response` says again. rendering, tool_use: of chats. tool_use None: no calls are looked for
    in the answer.
    """

    kind: Kind
    model: str | None = None
    prompts: tuple[Prompt, ...] = ()
    messages: tuple[Message, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    extras: Extras = PLAIN
    structured: Structured | None = None
    timeout_s: float | None = None
    unknown: tuple[str, ...] = ()
    echo: Mapping[str, object] | None = None
    rendering: Rendering = AS_IT_IS
    tool_use: ToolUse | None = None


def parse(kind: Kind, body: object, fields_of: Callable[[Mapping[str, object]], Fields] = Fields) -> Ask:
    """Check every field of a decoded JSON body. Raises RequestError 400. fields_of: how they are read."""
    if not isinstance(body, dict):
        raise invalid(None, "the body must be a JSON object")
    fields = fields_of(body)
    unknown = unknown_fields(body, KNOWN[kind], HARMLESS, NEUTRAL)
    stream = fields.flag("stream")
    max_tokens = _max_tokens(kind, fields)
    include_usage, continuous = _stream_options(fields, stream)
    extras = parse_extras(kind, fields, stream, max_tokens)
    offered = offer(fields) if kind == "chat" else Offer()
    return Ask(
        kind=kind,
        model=fields.text("model"),
        prompts=_prompts(fields.get("prompt")) if kind == "completion" else (),
        messages=messages(fields.get("messages")) if kind == "chat" else (),
        max_tokens=max_tokens,
        temperature=fields.number("temperature", 0.0, 2.0),
        top_p=_top_p(fields),
        top_k=_top_k(fields),
        seed=fields.integer("seed", -(2**63), 2**64 - 1),
        stop=_stop(fields.get("stop")),
        stop_ids=_stop_ids(fields.get("stop_token_ids")),
        ignore_eos=fields.flag("ignore_eos"),
        stream=stream,
        include_usage=include_usage,
        extras=replace(extras, continuous_usage=True) if continuous else extras,
        structured=structured(body),
        timeout_s=fields.number("timeout", MIN_TIMEOUT_S, MAX_TIMEOUT_S),
        unknown=unknown,
        rendering=rendering(fields, offered.tools) if kind == "chat" else AS_IT_IS,
        tool_use=offered.use,
    )


def _prompts(prompt: object) -> tuple[Prompt, ...]:
    if isinstance(prompt, str):
        return (prompt,)
    if prompt is None:
        raise invalid(
            "prompt", "prompt is required: a string, a list of strings, a list of token ids, or a list of those"
        )
    if not isinstance(prompt, list):
        raise invalid("prompt", "prompt must be a string or a list")
    if not prompt:
        raise invalid("prompt", "prompt must not be an empty list")
    if type(prompt[0]) is int:
        return (token_ids("prompt", prompt),)
    if len(prompt) > MAX_PROMPTS:
        raise invalid("prompt", f"prompt holds {len(prompt)} prompts; at most {MAX_PROMPTS} are served in one request")
    check_count("prompt", sum(len(item) for item in prompt if isinstance(item, list)))
    return tuple(_one(f"prompt[{index}]", item) for index, item in enumerate(prompt))


def _one(where: str, item: object) -> Prompt:
    if isinstance(item, str):
        return item
    if isinstance(item, list):
        return token_ids(where, item)
    raise invalid(where, f"{where} must be a string or a list of token ids")


def token_ids(where: str, ids: list[object]) -> list[int]:
    """Raises RequestError 400, naming `where`, for what is no list of ids."""
    if not ids:
        raise invalid(where, f"{where} must not be an empty list of token ids")
    check_count(where, len(ids))
    checked = [item for item in ids if type(item) is int]
    if len(checked) != len(ids):
        raise invalid(where, f"{where} must hold token ids (integers) only")
    if min(checked) < 0 or max(checked) > HIGHEST_ID:
        raise invalid(where, f"{where} holds an id outside 0..{HIGHEST_ID}")
    return checked


def check_count(where: str, count: int) -> None:
    """Of token ids in a request. Raises RequestError 400."""
    if count > MAX_IDS:
        raise invalid(where, f"{where} holds {count} token ids; at most {MAX_IDS} are allowed", "too_many_tokens")


def _max_tokens(kind: Kind, fields: Fields) -> int | None:
    echo_alone = kind == "completion" and fields.get("echo") is True
    old = fields.integer("max_tokens", 0 if echo_alone else 1, None)
    new = fields.integer("max_completion_tokens", 1, None)
    if new is None:
        return old
    if old is not None and old != new:
        raise invalid("max_tokens", "max_tokens and max_completion_tokens differ: give one of them")
    return new


def _top_k(fields: Fields) -> int | None:
    """0 and -1 both mean off."""
    top_k = fields.integer("top_k", -1, 2**31 - 1)
    return None if top_k is None else max(0, top_k)


def _top_p(fields: Fields) -> float | None:
    top_p = fields.number("top_p", 0.0, 1.0)
    if top_p == 0.0:
        raise invalid("top_p", "top_p must be above 0 and at most 1")
    return top_p


def _stop(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    strings = [stop] if isinstance(stop, str) else stop
    if not isinstance(strings, list):
        raise invalid("stop", "stop must be a string or a list of strings")
    if len(strings) > MAX_STOPS:
        raise invalid("stop", f"stop holds {len(strings)} strings; at most {MAX_STOPS} are allowed")
    return tuple(_stop_string(item) for item in strings)


def _stop_string(item: object) -> str:
    if not isinstance(item, str):
        raise invalid("stop", "stop must hold strings only")
    if not item:
        raise invalid("stop", "stop must not hold an empty string")
    if len(item) > MAX_STOP_CHARACTERS:
        raise invalid("stop", f"a stop string has {len(item)} characters; at most {MAX_STOP_CHARACTERS} are allowed")
    return item


def _stop_ids(ids: object) -> tuple[int, ...]:
    if ids is None or ids == []:
        return ()
    if not isinstance(ids, list):
        raise invalid("stop_token_ids", "stop_token_ids must be a list of token ids")
    if len(ids) > MAX_STOP_IDS:
        raise invalid("stop_token_ids", f"stop_token_ids holds {len(ids)} ids; at most {MAX_STOP_IDS} are allowed")
    return tuple(token_ids("stop_token_ids", ids))


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
