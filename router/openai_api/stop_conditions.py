"""What ends an answer besides the model: max_tokens, stop, stop_token_ids. Pure."""

from octavo.router.openai_api.fields import Fields, invalid
from octavo.router.openai_api.prompts import token_ids

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_STOP_IDS = 64


def max_tokens(kind: str, fields: Fields) -> int | None:
    echo_alone = kind == "completion" and fields.get("echo") is True
    old = fields.integer("max_tokens", 0 if echo_alone else 1, None)
    new = fields.integer("max_completion_tokens", 1, None)
    if new is None:
        return old
    if old is not None and old != new:
        raise invalid("max_tokens", "max_tokens and max_completion_tokens differ: give one of them")
    return new


def stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    strings = [value] if isinstance(value, str) else value
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


def stop_ids(ids: object) -> tuple[int, ...]:
    if ids is None or ids == []:
        return ()
    if not isinstance(ids, list):
        raise invalid("stop_token_ids", "stop_token_ids must be a list of token ids")
    if len(ids) > MAX_STOP_IDS:
        raise invalid("stop_token_ids", f"stop_token_ids holds {len(ids)} ids; at most {MAX_STOP_IDS} are allowed")
    return tuple(token_ids("stop_token_ids", ids))
