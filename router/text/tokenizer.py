"""A model's text side, built from the files that a leader serves: encode prompts, render chats, decode answers.

Beginning-of-sequence rule: a chat has what its template wrote and nothing more; a raw prompt has one if the
tokenizer's own rules say so, and never two.
"""

from array import array
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain

from octavo.router.openai_api.fields import invalid
from octavo.router.openai_api.openai import ParsedRequest
from octavo.router.openai_api.prompts import Prompt
from octavo.router.openai_api.sampling import check_vocabulary
from octavo.router.parsers import reasoning
from octavo.router.text.bpe_word_cache import WordEncoder
from octavo.router.text.detokenise import (
    ByteLevelDetokeniser,
    Detokeniser,
    MarkedDetokeniser,
    TokenBytes,
    TokenNames,
    TokenTexts,
    WindowDetokeniser,
)
from octavo.router.text.model_files import (
    DEFAULT,
    TOOL_USE,
    added_tokens,
    json_of,
    said,
    sampling_defaults,
    special_token,
    templates,
    tokenizer_of,
    vocabulary_of,
)
from octavo.router.text.templates import ChatTemplate, Rendered, any_of, failed

REASONING_TAIL = 32  # ids at the end of a prompt that may open reasoning
NO_MARKS: Mapping[int, str] = {}


class ModelTokenizer:
    """Everything that one model's files say about text. Immutable but for its caches."""

    def __init__(self, files: Mapping[str, bytes], context_length: int) -> None:
        self.context_length = context_length
        described = json_of(files, "tokenizer.json")
        self._tokenizer = tokenizer_of(files, described)
        settings = json_of(files, "tokenizer_config.json")
        added = added_tokens(described)
        self._added = {content: number for content, number, _ in added}
        self._control = {content: number for content, number, special in added if special}
        self._special = any_of(list(self._control))
        self._special_ids = frozenset(self._control.values())
        self.vocabulary = vocabulary_of(files, self._tokenizer)
        self._bos = special_token(settings, "bos_token")
        self._bos_id = None if self._bos is None else self._tokenizer.token_to_id(self._bos)
        self._add_bos = settings.get("add_bos_token")
        self._words = WordEncoder.of(self._tokenizer, described)
        decoder = described.get("decoder")
        self._byte_level = isinstance(decoder, dict) and decoder.get("type") == "ByteLevel"
        shown, every = TokenBytes(self._tokenizer, self._special_ids), TokenBytes(self._tokenizer, frozenset())
        self._shown, self._all = (shown, TokenTexts(shown)), (every, TokenTexts(every))
        self.names = TokenNames(self._tokenizer, self._byte_level)
        self._templates = templates(files, settings)
        names = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
        self._names = {name: value for name in names if (value := special_token(settings, name)) is not None}
        self._compiled: dict[str, ChatTemplate] = {}
        self.sampling = sampling_defaults(json_of(files, "generation_config.json"))

    def within(self, context_length: int) -> "ModelTokenizer":
        """The same, caches included, for groups with another context."""
        if context_length == self.context_length:
            return self
        other = copy(self)
        other.context_length = context_length
        return other

    def encode(self, request: ParsedRequest) -> list[bytes]:
        """Packed ids of each prompt, truncated where asked. Raises RequestError 400 naming the field."""
        prompts = self._encoded(request)
        kept = request.options.truncate
        if kept is None:
            return prompts
        if kept == -1:
            kept = self.context_length - max(1, request.max_tokens or 1)
        return [prompt[-4 * kept :] for prompt in prompts]

    def _encoded(self, request: ParsedRequest) -> list[bytes]:
        if request.kind != "completion":
            return [_filled("messages", _packed(self.chat_ids(request)))]
        several = len(request.prompts) > 1
        fields = [f"prompt[{index}]" if several else "prompt" for index in range(len(request.prompts))]
        return [self._prompt(field, prompt) for field, prompt in zip(fields, request.prompts, strict=True)]

    def chat_ids(self, request: ParsedRequest) -> list[int]:
        """Of a chat, as its template writes it. Raises RequestError 400."""
        template = self._template(TOOL_USE if request.rendering.tools and TOOL_USE in self._templates else DEFAULT)
        return self._rendered(template.render(request.messages, request.rendering))

    def text_ids(self, text: str, special: bool) -> list[int]:
        """Of a raw prompt, perhaps none. special: with what the tokenizer adds, as /v1/completions has it."""
        if not special:
            return self._ids(text)
        return array("I", self._with_bos(text, self._text(text))).tolist()

    @property
    def template_source(self) -> str:
        """All of the model's chat templates, to look for what they know; empty without one."""
        return "\n".join(self._templates.values())

    @property
    def added_tokens(self) -> Mapping[str, int]:
        """Tokens beside the learnt vocabulary, control tokens or not, and their ids."""
        return self._added

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Tokens whose text is never shown, and their ids."""
        return self._control

    def thought(self, request: ParsedRequest, prompt: bytes) -> reasoning.Thought:
        """Of the template, or of the message that the answer continues."""
        if request.rendering.continue_final_message:
            content = request.messages[-1].content
            last = content if isinstance(content, str) else "".join(content or ())
            return reasoning.thought_in(last)
        tail = array("I", prompt[-4 * REASONING_TAIL :]).tolist()
        return reasoning.thought_of(self._tokenizer.decode(tail, skip_special_tokens=False))

    def resolved(self, request: ParsedRequest) -> ParsedRequest:
        """Its bad words as ids. Raises RequestError 400 naming the field."""
        check_vocabulary(request.sampling, self.vocabulary)
        words = tuple(chain.from_iterable(map(self._bad_word, request.options.bad_words)))
        return replace(request, sampling=replace(request.sampling, bad_words=words)) if words else request

    def text(self, prompt: bytes, skip_special: bool) -> str:
        """What packed ids say."""
        return self._tokenizer.decode(array("I", prompt).tolist(), skip_special_tokens=skip_special)

    def decode(self, field: str, ids: Sequence[int]) -> str:
        """Their text, that of special tokens too. Raises RequestError 400, naming `field`, for an id beyond the
        vocabulary."""
        if ids:
            self._check_ids(field, ids)
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary spells it; an id of a padded table without a token is empty."""
        return [self._tokenizer.id_to_token(token) or "" for token in ids]

    def detokeniser(self, prompt: bytes, skip_special: bool = True, marks: Mapping[int, str] = NO_MARKS) -> Detokeniser:
        """marks: control tokens that are shown, and what stands for them."""
        made: Detokeniser
        if self._byte_level:
            made = ByteLevelDetokeniser(*(self._shown if skip_special else self._all))
        else:
            made = WindowDetokeniser(self._tokenizer, array("I", prompt[-64:]).tolist(), skip_special)
        return MarkedDetokeniser(made, marks) if marks else made

    def _bad_word(self, word: str) -> list[tuple[int, ...]]:
        """At the beginning of a text, and after a space where that makes other tokens. (As vLLM does.)"""
        word = word.lstrip()
        plain, spaced = (tuple(self._plain(text)) for text in (word, " " + word))
        return [plain, spaced] if plain[:1] != spaced[:1] and len(plain) == len(spaced) else [plain]

    def _prompt(self, field: str, prompt: Prompt) -> bytes:
        if isinstance(prompt, str):
            return _filled(field, self._with_bos(prompt, self._text(prompt)))
        self._check_ids(field, prompt)
        return _packed(prompt)

    def _check_ids(self, field: str, ids: Sequence[int]) -> None:
        if max(ids) >= self.vocabulary:
            raise invalid(field, f"{field} holds the id {max(ids)}; the vocabulary ends at {self.vocabulary - 1}")

    def _text(self, text: str) -> bytes:
        ids = self._words.encode(text) if self._words is not None else None
        return _packed(self._ids(text, special=True)) if ids is None else ids

    def _with_bos(self, text: str, ids: bytes) -> bytes:
        """tokenizer_config.json's `add_bos_token` decides where it is given; a text that spells one has it already."""
        if self._bos is None or self._bos_id is None:
            return ids
        bos = _packed([self._bos_id])
        if not ids.startswith(bos):
            return bos + ids if self._add_bos is True else ids
        if text.startswith(self._bos):
            return ids[4:] if ids.startswith(bos * 2) and not text.startswith(self._bos * 2) else ids
        return ids[4:] if self._add_bos is False else ids

    def _template(self, name: str) -> ChatTemplate:
        if name not in self._compiled:
            if name not in self._templates:
                raise failed("this model has no chat template: use /v1/completions")
            try:
                self._compiled[name] = ChatTemplate(self._templates[name], self._names, list(self._control))
            except Exception as error:  # jinja2 compiles the model's own text: any error is the template's
                raise failed(f"the model's chat template is invalid: {error}") from error
        return self._compiled[name]

    def _rendered(self, rendered: Rendered) -> list[int]:
        if rendered.mark is None:
            return self._ids(rendered.text)
        return self._marked(rendered.text, rendered.mark)

    def _marked(self, text: str, mark: str) -> list[int]:
        """Between the template's own control tokens everything is plain text, whatever it spells."""
        ids: list[int] = []
        start = 0
        for found in self._special.finditer(text) if self._special is not None else ():
            ids += self._plain(text[start : found.start()].replace(mark, ""))
            ids.append(self._control[found[0]])
            start = found.end()
        return ids + self._plain(text[start:].replace(mark, ""))

    def _plain(self, text: str) -> list[int]:
        self._tokenizer.encode_special_tokens = True
        try:
            return self._ids(text)
        finally:
            self._tokenizer.encode_special_tokens = False

    def _ids(self, text: str, special: bool = False) -> list[int]:
        """special: with what the tokenizer adds. Raises RequestError 400 for a text that it cannot encode."""
        try:
            return self._tokenizer.encode(text, add_special_tokens=special).ids
        except BaseException as error:
            why = f"the model's tokenizer cannot encode this text: {said(error)}"
            raise invalid(None, why) from error


def _packed(ids: Sequence[int]) -> bytes:
    return array("I", ids).tobytes()


def _filled(field: str, packed: bytes) -> bytes:
    if not packed:
        raise invalid(field, f"{field} has no tokens: this model needs at least one")
    return packed
