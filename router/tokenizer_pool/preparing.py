"""From a request's body to an encoded request with its grammar: parse, render, encode, compile.

Runs in helper processes.
"""

from dataclasses import replace

from octavo.router.constrained.formats import Formats
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.responses.response_tools import field_of, in_response_terms
from octavo.router.text.bodies import Form, Prepared, encode, read
from octavo.router.text.tokenizer import TextModel


def prepare(model: TextModel, form: Form, body: bytes, formats: Formats) -> Prepared:
    """formats: of the model's answers. Raises RequestError 400."""
    try:
        prepared = encode(model, form, read(form, body))
        formats.check(prepared.ask)
        bound = _bound(prepared, formats)
    except RequestError as error:
        raise (in_response_terms(error) if form == "response" else error) from None
    return replace(bound, grammar_field=field_of(bound.grammar_field)) if form == "response" else bound


def _bound(prepared: Prepared, formats: Formats) -> Prepared:
    use = prepared.ask.tool_use
    if prepared.ask.structured is None and (use is None or not use.bound):
        return prepared
    from octavo.router.constrained.constrain import bind  # the compiler is loaded by the first request that needs it

    return bind(prepared, formats)
