"""What router and worker agree on about grammars: the router compiles one first, to refuse what an engine would."""

from llguidance import LLParserLimits

REMEMBERED = 64  # compiled grammars of a process
MAX_GRAMMAR = 200_000  # symbols


def limits() -> LLParserLimits:
    """Errors are told to clients: they name what is wrong, and nothing of the parser's state."""
    return LLParserLimits(max_grammar_size=MAX_GRAMMAR, verbose_errors=False)
