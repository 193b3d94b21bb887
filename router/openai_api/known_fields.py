"""Names that a request may hold: what Octavo serves, what it knows and does not serve, and unknown names.

served            read by the endpoint's parser
harmless          accepted, without effect on the answer
known, unserved   refused by name unless it asks for nothing: the client would get another answer than it wants
unknown           ignored and reported in a header; refused when the client or the router is strict
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from octavo.router.openai_api.fields import unsupported

Values = tuple[Any, ...]  # Any: neutral values of any JSON type

MIN_TIMEOUT_S, MAX_TIMEOUT_S = 0.001, 86_400.0
MAX_UNKNOWN = 16  # that are reported
MAX_NAME = 64

# Parsed for every endpoint.
EVERYWHERE = frozenset(("model", "timeout"))

# Fields of OpenAI's API, of vLLM, SGLang and others that clients of theirs send: no endpoint of ours serves them.
ELSEWHERE: Mapping[str, Values] = {
    "custom_logit_processor": (),
    "custom_params": (),
    "data_parallel_rank": (),
    "detokenize": (True,),
    "dynatemp_range": (0,),
    "ebnf": (),
    "ec_transfer_params": (),
    "grammar": (),
    "guided_decoding_backend": (),
    "guided_json_object": (False,),
    "guided_whitespace_pattern": (),
    "images": ([],),
    "include_reasoning": (True,),
    "json_schema": (),
    "kv_transfer_params": (),
    "logits_processors": ([],),
    "logprob_token_ids": (),
    "lora_path": (),
    "lora_request": (),
    "media_io_kwargs": ({},),
    "min_completion_tokens": (0,),
    "mirostat": (0,),
    "mm_processor_kwargs": ({},),
    "moderation": (),
    "no_stop_trim": (False,),
    "prompt_embeds": (),
    "regex": (),
    "repetition_detection": (),
    "return_hidden_states": (False,),
    "return_logprob": (False,),
    "return_mm_kwargs": (True, False),
    "return_prompt_text": (False,),
    "return_token_offsets": (False,),
    "return_tokens_as_token_ids": (False,),
    "routed_experts_prompt_start": (0,),
    "separate_reasoning": (),
    "session_params": (),
    "stop_regex": (),
    "stream_interval": (1,),
    "stream_reasoning": (),
    "structural_tag": (),
    "thinking": (),
    "thinking_token_budget": (),
    "top_a": (0,),
    "truncation_side": ("left",),
    "typical_p": (1,),
    "verbosity": ("medium",),
    "vllm_xargs": ({},),
    "watermarking": (False,),
}

# Fields of one endpoint, which at another are a mistake worth telling.
OF_ONE_ENDPOINT = frozenset(
    "prompt messages max_completion_tokens input instructions max_output_tokens tokens "
    "previous_response_id conversation background include".split()
)


def unknown_fields(
    body: Mapping[str, object], served: Set[str], harmless: Set[str], neutral: Mapping[str, Values]
) -> tuple[str, ...]:
    """Unknown names, bounded in number. Raises RequestError 400 naming a field that is not served."""
    unknown: list[str] = []
    for name, value in body.items():
        if value is None or name in served or name in EVERYWHERE or name in harmless:
            continue
        values = neutral[name] if name in neutral else ELSEWHERE.get(name)
        if values is not None and not is_one_of(value, values):
            raise unsupported(name, f"{name} is not supported with this value: remove it")
        if values is None and name in OF_ONE_ENDPOINT:
            raise unsupported(name, f"{name} is a field of another endpoint: remove it")
        if values is None:
            unknown.append(name[:MAX_NAME])
    return tuple(unknown[:MAX_UNKNOWN])


def is_one_of(value: object, values: Sequence[object]) -> bool:
    """Equality that keeps true and 1 apart."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)
