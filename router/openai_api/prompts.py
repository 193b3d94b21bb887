"""The prompt of a completion (text, ids, or a list of either), and token ids wherever a request has some. Pure."""

from octavo.router.openai_api.fields import invalid

Prompt = str | list[int]

MAX_PROMPTS = 256
MAX_IDS = 1_000_000  # in one request
HIGHEST_ID = 2**32 - 2  # 0xFFFFFFFF means "no token" between router and engine


def prompts(prompt: object) -> tuple[Prompt, ...]:
    if isinstance(prompt, str):
        return (prompt,)
    if prompt is None:
        raise invalid(
            "prompt", "prompt is required: a string, a list of strings, a list of token ids, or a list of such lists"
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
