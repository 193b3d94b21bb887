"""Whether a grammar can distinguish unmarked tool calls from an answer with a response format.

An answer may look like a call; and a lexer that takes what is longest may, on the way of the one, lose the other. So
it is tried: along the beginning of a call, byte by byte, either must stay possible as long as it is, and at its end the
call alone.
"""

from collections.abc import Sequence
from functools import lru_cache

from llguidance import LLMatcher, LLTokenizer

from octavo.shared.grammars import limits

OCTETS = LLTokenizer("byte")  # a vocabulary of bytes


@lru_cache(maxsize=64)  # a client sends the same tools and form again and again, and a head takes milliseconds
def is_unambiguous(either: str, answer: str, heads: tuple[str, ...]) -> bool:
    """either: the grammar of the answer or calls; answer: of it alone; heads: of calls, up to their arguments. False
    also where it cannot be tried, for a grammar that names tokens of the model."""
    return all(_along(head.encode(), either, answer, [one.encode() for one in heads]) for head in heads)


def _along(head: bytes, either: str, answer: str, heads: Sequence[bytes]) -> bool:
    both, alone = (LLMatcher(OCTETS, text, log_level=0, limits=limits()) for text in (either, answer))
    if both.is_error() or alone.is_error():
        return False
    possible = True  # for the answer
    for at, octet in enumerate(head):
        calls = {one[at] for one in heads if one.startswith(head[:at])}
        answers = _allowed(alone) if possible else set()
        if _allowed(both) != calls | answers or not both.consume_token(octet):
            return False
        possible = possible and octet in answers and alone.consume_token(octet)
    return not possible


def _allowed(matcher: LLMatcher) -> set[int]:
    bits = int.from_bytes(matcher.compute_bitmask(), "little")
    return {token for token in range(OCTETS.vocab_size) if bits >> token & 1}
