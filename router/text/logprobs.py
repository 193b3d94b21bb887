"""Log-probabilities from the engine's bytes to the forms that clients read. Pure.

    engine: rank u32 | 1 + top ids u32 | 1 + top float32, the token first      of each token, one after the other

All are of the logits as the model gives them: before temperature, penalties, biases and masks. Infinity is -9999.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Body = dict[str, object]


class TokenText(NamedTuple):
    """raw: the bytes that the token stands for. text: the same when they are whole characters, else `bytes:\\xe2`."""

    text: str
    raw: bytes


TokenNamer = Callable[[int], TokenText]


class Scored(NamedTuple):
    """A token with its log-probability. rank: from 1. top: (id, log-probability) of the likeliest, best first."""

    id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


class TokenEntry(NamedTuple):
    """A token of an answer. offset: where its text begins, in characters. scored: None of the first of a prompt."""

    id: int
    offset: int
    scored: Scored | None


def text_of(raw: bytes) -> TokenText:
    try:
        return TokenText(raw.decode(), raw)
    except UnicodeDecodeError:
        return TokenText("bytes:" + "".join(f"\\x{byte:02x}" for byte in raw), raw)


def unpack(packed: bytes, top: int) -> list[Scored]:
    """top: what the engine was asked for. Raises ValueError when the bytes are of another width."""
    width = 1 + 2 * (top + 1)
    numbers, floats = memoryview(packed).cast("I"), memoryview(packed).cast("f")
    if len(numbers) % width:
        raise ValueError(f"{len(numbers)} words are no log-probabilities of {width} words a token")
    scored = []
    for at in range(0, len(numbers), width):
        ids = numbers[at + 1 : at + 2 + top].tolist()
        values = floats[at + 2 + top : at + width].tolist()
        likeliest = tuple(zip(ids[1:], values[1:], strict=True))
        scored.append(Scored(ids[0], values[0], numbers[at], likeliest))
    return scored


def chat_body(entries: Iterable[TokenEntry], top: int, names: TokenNamer) -> Body:
    """`logprobs` of a chat's choice."""
    content = []
    for entry in entries:
        if entry.scored is not None:
            likeliest = [_named(token, value, names) for token, value in entry.scored.top[:top]]
            content.append(_named(entry.id, entry.scored.logprob, names) | {"top_logprobs": likeliest})
    return {"content": content, "refusal": None}


def completion_body(entries: Sequence[TokenEntry], top: int, names: TokenNamer) -> Body:
    """`logprobs` of a completion's choice: four lists of one length."""
    return {
        "tokens": [names(entry.id).text for entry in entries],
        "token_logprobs": [entry.scored.logprob if entry.scored else None for entry in entries],
        "top_logprobs": [_by_text(entry.scored, top, names) if entry.scored else None for entry in entries],
        "text_offset": [entry.offset for entry in entries],
    }


def prompt_body(scored: Iterable[Scored], top: int, names: TokenNamer) -> list[Body | None]:
    """vLLM's `prompt_logprobs`: null, then of each further token a table by id."""
    return [None, *(_by_id(one, top, names) for one in scored)]


def _named(token: int, value: float, names: TokenNamer) -> Body:
    name = names(token)
    return {"token": name.text, "logprob": value, "bytes": list(name.raw)}


def _by_text(scored: Scored, top: int, names: TokenNamer) -> Body:
    """The likeliest, and the token itself; of several tokens with one text the likelier counts."""
    table: Body = {}
    for token, value in (*scored.top[:top], (scored.id, scored.logprob)):
        table.setdefault(names(token).text, value)
    return table


def _by_id(scored: Scored, top: int, names: TokenNamer) -> Body:
    table: Body = {str(scored.id): _ranked(scored.id, scored.logprob, scored.rank, names)}
    for rank, (token, value) in enumerate(scored.top[:top], 1):
        table.setdefault(str(token), _ranked(token, value, rank, names))
    return table


def _ranked(token: int, value: float, rank: int, names: TokenNamer) -> Body:
    return {"logprob": value, "rank": rank, "decoded_token": names(token).text}
