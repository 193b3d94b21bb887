"""/v1/responses, without state: its fields become a chat's fields and are checked as a chat's.

Nothing is stored, so what refers to something stored (previous_response_id, conversation, background) is refused, and
`store` counts as false when it is absent. Tools, formats and items of calls are chats' to accept or refuse.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.fields import Fields, invalid, unsupported
from octavo.router.openai_api.known_fields import EVERYWHERE, Values, unknown_fields
from octavo.router.openai_api.openai import HARMLESS, KNOWN, NEUTRAL, ParsedRequest, parse
from octavo.router.openai_api.responses.response_items import conversation
from octavo.router.openai_api.responses.response_tools import echoed, in_response_terms, to_chat_fields

MAX_METADATA = 16
MAX_METADATA_KEY, MAX_METADATA_VALUE = 64, 512

ECHOED = ("user", "safety_identifier", "prompt_cache_key")
OWN = frozenset(("input", "instructions", "max_output_tokens", "metadata", "stream_options", "text", *ECHOED))
# Read by the chat side under the same name; what only chats have is not taken from it.
SHARED = (KNOWN["chat"] - frozenset(("messages", "max_tokens", "max_completion_tokens", "stream_options"))) | EVERYWHERE
WITHOUT_EFFECT = HARMLESS - OWN - frozenset(("store",))
REFUSED: Mapping[str, Values] = {
    **{name: values for name, values in NEUTRAL.items() if name not in KNOWN["chat"]},
    "access_programs": (),
    "background": (False,),
    "background_options": (),
    "context_management": ([],),
    "conversation": (),
    "echo": (False,),
    "image": (),
    "include": ([],),
    "include_stop_str_in_output": (False,),
    "logprobs": (False,),
    "max_completion_tokens": (),
    "max_tokens": (),
    "max_tool_calls": (),
    "min_tokens": (0,),
    "moderation": (),
    "n": (1,),
    "previous_response_id": (),
    "prompt": (),
    "prompt_cache_options": ({},),
    "prompt_logprobs": (),
    "reasoning": ({},),
    "response_format": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "store": (False,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
SERVED = OWN | (SHARED - REFUSED.keys())


def parse_response(body: object, fields_of: Callable[[Mapping[str, object]], Fields] = Fields) -> ParsedRequest:
    """Check every field of a decoded JSON body. Raises RequestError 400."""
    if not isinstance(body, dict):
        raise invalid(None, "the body must be a JSON object")
    fields = fields_of(body)
    unknown = unknown_fields(body, SERVED, WITHOUT_EFFECT, REFUSED)
    instructions = fields.text("instructions")
    found = conversation(instructions, fields.get("input"))
    chat = {name: body[name] for name in SERVED - OWN if name in body} | {"messages": found.messages}
    most = fields.integer("max_output_tokens", 1, None)
    if most is not None:
        chat["max_tokens"] = most
    _check_stream_options(fields)
    chat |= to_chat_fields(body)
    echo: dict[str, object] = {"instructions": instructions, "max_output_tokens": most, "metadata": _metadata(fields)}
    echo |= {name: fields.text(name) for name in ECHOED}
    try:
        request = parse("chat", chat, fields_of)
    except RequestError as error:
        raise in_response_terms(found.in_response_terms(error)) from error
    return replace(request, kind="response", unknown=unknown, echo=echo | echoed(body))


def _metadata(fields: Fields) -> dict[str, str]:
    """Metadata is only repeated, so its bounds are OpenAI's."""
    given = fields.get("metadata")
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise invalid("metadata", "metadata must be an object of strings")
    longest = max((len(value) for value in given.values()), default=0)
    if len(given) > MAX_METADATA or longest > MAX_METADATA_VALUE or any(len(key) > MAX_METADATA_KEY for key in given):
        bounds = f"{MAX_METADATA} keys of {MAX_METADATA_KEY} characters with values of {MAX_METADATA_VALUE}"
        raise invalid("metadata", f"metadata may hold at most {bounds}")
    return given


def _check_stream_options(fields: Fields) -> None:
    options = fields.get("stream_options")
    if options is None:
        return
    if not isinstance(options, dict):
        raise invalid("stream_options", "stream_options must be an object")
    for name in options:
        if name != "include_obfuscation":
            raise unsupported(f"stream_options.{name}"[:96], f"unknown field stream_options.{name[:64]}: remove it")
    Fields(options, "stream_options.").flag("include_obfuscation")
