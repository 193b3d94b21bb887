"""Reads and checks the model files that a leader serves; an error names the file."""

from collections.abc import Mapping

import orjson
from tokenizers import Tokenizer

from octavo.router.errors import RouterError
from octavo.router.jobs.generation import RequestError
from octavo.router.openai_api.fields import Fields
from octavo.router.text.bpe_word_cache import SAMPLE
from octavo.router.text.tokenizer_parts import in_parts
from octavo.shared.sampling_params import RANGES, SamplingParams

DEFAULT, TOOL_USE = "default", "tool_use"  # names of templates, where a model has several
PANIC = "PanicException"  # a BaseException, of a module that cannot be imported


class ModelFilesInvalid(RouterError):
    """The files that a leader served cannot be used; the message names the file."""


def json_of(files: Mapping[str, bytes], name: str) -> dict[str, object]:
    data = files.get(name)
    if data is None:
        return {}
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ModelFilesInvalid(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFilesInvalid(f"{name} must hold a JSON object")
    return value


def tokenizer_of(files: Mapping[str, bytes], described: Mapping[str, object]) -> Tokenizer:
    """described: the content of tokenizer.json. Raises ModelFilesInvalid."""
    data = files.get("tokenizer.json")
    if data is None:
        raise ModelFilesInvalid("tokenizer.json is missing: convert the model's tokenizer to the fast format")
    try:
        tokenizer = _in_parts(described) or Tokenizer.from_str(data.decode())
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.decode(tokenizer.encode(SAMPLE + "\0\U0001f336").ids)  # some files are bad only when used
    except BaseException as error:
        raise ModelFilesInvalid(f"tokenizer.json cannot be used: {said(error)}") from error
    return tokenizer


def _in_parts(described: Mapping[str, object]) -> Tokenizer | None:
    """None also where the parts cannot be used: then the tokenizers library reads the file, or says what is wrong."""
    try:
        return in_parts(described)
    except BaseException as error:
        said(error)  # raises again what is no verdict on the file, as MemoryError
        return None


def said(error: BaseException) -> str:
    """The message of an error of the tokenizers library: a bare Exception, or a panic. Raises any other error again."""
    if isinstance(error, MemoryError) or not (isinstance(error, Exception) or type(error).__name__ == PANIC):
        raise error
    return str(error)[:300]


def sampling_defaults(generation_config: Mapping[str, object]) -> SamplingParams:
    """What holds when a request does not say: the model's own advice, else OpenAI's defaults."""
    fields = Fields(generation_config)
    try:
        temperature = fields.number("temperature", 0.0, 2.0)
        top_p = fields.number("top_p", 0.0, 1.0)
        top_k = fields.integer("top_k", -1, 2**31 - 1)
        min_p = fields.number("min_p", *RANGES["min_p"])
        repetition_penalty = fields.number("repetition_penalty", *RANGES["repetition_penalty"])
    except RequestError as error:
        raise ModelFilesInvalid(f"generation_config.json: {error.message}") from error
    return SamplingParams(
        temperature=1.0 if temperature is None else temperature,
        top_k=max(0, top_k or 0),
        top_p=top_p or 1.0,
        min_p=min_p or 0.0,
        repetition_penalty=repetition_penalty or 1.0,
    )


def vocabulary_of(files: Mapping[str, bytes], tokenizer: Tokenizer) -> int:
    """Ids that the model has a row for; more than the tokenizer names when the table is padded."""
    size = json_of(files, "config.json").get("vocab_size")
    return size if isinstance(size, int) and size > 0 else tokenizer.get_vocab_size()


def special_token(settings: Mapping[str, object], name: str) -> str | None:
    """A special token's text: a string, or an object with `content`."""
    value = settings.get(name)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def templates(files: Mapping[str, bytes], settings: Mapping[str, object]) -> dict[str, str]:
    """By name: chat_template.jinja, or the one or several of tokenizer_config.json."""
    if (data := files.get("chat_template.jinja")) is not None:
        return {DEFAULT: data.decode(errors="replace")}
    value = settings.get("chat_template")
    if isinstance(value, str):
        return {DEFAULT: value}
    items = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    named = {str(item.get("name")): item.get("template") for item in items}
    return {name: source for name in (DEFAULT, TOOL_USE) if isinstance(source := named.get(name), str)}


def added_tokens(described: Mapping[str, object]) -> list[tuple[str, int, bool]]:
    """Content, id, and whether it is a control token."""
    tokens = described.get("added_tokens")
    items = [item for item in tokens if isinstance(item, dict)] if isinstance(tokens, list) else []
    return [(str(item["content"]), int(item["id"]), bool(item.get("special"))) for item in items]
