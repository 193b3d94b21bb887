"""Limits of grammars, shared by router and worker: the router refuses what an engine would."""

from llguidance import LLParserLimits

REMEMBERED = 64  # compiled grammars in the cache of a process
MAX_GRAMMAR = 200_000  # symbols


def limits() -> LLParserLimits:
    """Limits of the parser. Clients see its errors, so they leave out the parser's state."""
    return LLParserLimits(max_grammar_size=MAX_GRAMMAR, verbose_errors=False)
