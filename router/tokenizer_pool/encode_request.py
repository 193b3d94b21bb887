"""From a request's body to an encoded request with its grammar: parse, render, encode, compile.

Runs in helper processes.
"""

from dataclasses import replace

from octavo.router.constrained.formats import Formats
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.responses.response_tools import field_of, in_response_terms
from octavo.router.text.bodies import BodyKind, EncodedRequest, encode, read
from octavo.router.text.tokenizer import ModelTokenizer


def prepare(model: ModelTokenizer, body_kind: BodyKind, body: bytes, formats: Formats) -> EncodedRequest:
    """formats: of the model's answers. Raises RequestError 400."""
    try:
        encoded = encode(model, body_kind, read(body_kind, body))
        formats.check(encoded.request)
        bound = _constrained(encoded, formats)
    except RequestError as error:
        raise (in_response_terms(error) if body_kind == "response" else error) from None
    return replace(bound, grammar_field=field_of(bound.grammar_field)) if body_kind == "response" else bound


def _constrained(encoded: EncodedRequest, formats: Formats) -> EncodedRequest:
    use = encoded.request.tool_use
    if encoded.request.structured is None and (use is None or not use.bound):
        return encoded
    from octavo.router.constrained.constrain import (
        constrain,  # the compiler is loaded by the first request that needs it
    )

    return constrain(encoded, formats)
