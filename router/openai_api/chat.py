"""How a chat request's template is rendered: tools, documents, variables, and where the prompt ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.router.openai_api.fields import Fields, invalid, unsupported
from octavo.router.openai_api.plain_json import JsonLimits, check_bounds

# Names that the renderer sets; a client must not override them.
OWNED = frozenset(
    "messages conversation tools documents chat_template add_generation_prompt continue_final_message tokenize "
    "tokenizer_kwargs sanitize_control_tokens padding truncation max_length return_tensors return_dict "
    "return_assistant_tokens_mask bos_token eos_token unk_token pad_token sep_token cls_token mask_token self "
    "range dict lipsum cycler joiner namespace raise_exception strftime_now".split()
)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
VARIABLE_BOUNDS = JsonLimits(depth=16, size=64 << 10)
DOCUMENT_BOUNDS = JsonLimits(depth=16, size=8 << 20)
MAX_DOCUMENTS = 1_000
Json = dict[str, Any]  # Any: JSON of any shape


@dataclass(frozen=True, slots=True)
class Rendering:
    """variables: further names that the template sees. continue_final_message: the last message is left open."""

    tools: tuple[Json, ...] = ()
    documents: tuple[Json, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False


DEFAULT_RENDERING = Rendering()


def rendering(fields: Fields, tools: tuple[Json, ...]) -> Rendering:
    """Raises RequestError 400."""
    continues = fields.flag("continue_final_message")
    prompted = fields.flag("add_generation_prompt")
    if continues and prompted:
        raise invalid(
            "continue_final_message",
            "continue_final_message and add_generation_prompt are not compatible: the last message is either "
            "continued or followed by a new one",
        )
    return Rendering(
        tools=tools,
        documents=_documents(fields.get("documents")),
        variables=_variables(fields),
        add_generation_prompt=prompted if fields.get("add_generation_prompt") is not None else not continues,
        continue_final_message=continues,
    )


def _variables(fields: Fields) -> Mapping[str, Any]:
    given = fields.get("chat_template_kwargs")
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise invalid("chat_template_kwargs", "chat_template_kwargs must be an object")
    for name in given:
        if name in OWNED or not name.isidentifier() or name.startswith("_"):
            where = f"chat_template_kwargs.{name[:64]}"
            raise unsupported(where, f"{where} is not for clients to set: remove it")
    check_bounds("chat_template_kwargs", given, VARIABLE_BOUNDS)
    effort = fields.text("reasoning_effort")
    if effort is None:
        return given
    if effort not in EFFORTS:
        raise invalid("reasoning_effort", f"reasoning_effort must be one of {', '.join(EFFORTS)}")
    if given.get("reasoning_effort", effort) != effort:
        raise invalid("reasoning_effort", "reasoning_effort and chat_template_kwargs.reasoning_effort differ")
    return given | {"reasoning_effort": effort}


def _documents(value: object) -> tuple[Json, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid("documents", "documents must be a list of objects, such as {title, text}")
    if len(value) > MAX_DOCUMENTS:
        raise invalid("documents", f"documents holds {len(value)} documents; at most {MAX_DOCUMENTS} are allowed")
    check_bounds("documents", value, DOCUMENT_BOUNDS)
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise invalid(f"documents[{index}]", f"documents[{index}] must be an object")
    return tuple(value)
