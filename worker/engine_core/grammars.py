"""Grammars that bind what a request may generate: compiled beside the loop of the core, remembered, copied.

llguidance walks a grammar token by token and says which ids may follow. Its matchers never raise for what a user wrote:
they turn into an error state, which is asked for here.

    Willard, Louf: Efficient Guided Generation for Large Language Models (2023), arXiv:2307.09702
"""

import ctypes
import logging
import os
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from llguidance import LLExecutor, LLMatcher, LLTokenizer

from octavo.shared.grammars import REMEMBERED, limits
from octavo.worker.errors import WorkerError
from octavo.worker.models.folder.checkpoint import inspect

WORD_BYTES = 4

logger = logging.getLogger(__name__)


def mask_bytes(vocabulary: int) -> int:
    """Of one row of bits, in whole 32-bit words."""
    return -(-vocabulary // (8 * WORD_BYTES)) * WORD_BYTES


class GrammarInvalid(WorkerError):
    """A grammar that cannot be compiled, or that nothing matches; the message says why."""


class Matcher:
    """How far one request's text has come in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self.inner = matcher

    def take(self, ids: Sequence[int]) -> None:
        """The request has generated these; its masks allowed them."""
        self.inner.consume_tokens(list(ids))

    @property
    def broken(self) -> bool:
        """It went beyond llguidance's bounds in the middle of a text: it allows nothing but the end from then on."""
        return bool(self.inner.is_error())


class Masker:
    """Fills the masks of many matchers: beside a GPU on threads of llguidance's own. Beside ranks on a CPU on the
    thread that asks: most masks take microseconds, and each thread that is woken takes a core from a rank, whose others
    wait for it at their next barrier."""

    def __init__(self, vocabulary: int, device: str = "cpu") -> None:
        """device: of the ranks."""
        self._row_bytes = mask_bytes(vocabulary)
        self._executor = None if device == "cpu" else LLExecutor()

    def fill(self, matchers: Sequence[Matcher | None]) -> bytes:
        """One row of bits for each, id i in bit i % 32 of word i // 32; where there is none every id is allowed."""
        rows = bytearray(b"\xff") * (self._row_bytes * len(matchers))
        bound = [(matcher.inner, row) for row, matcher in enumerate(matchers) if matcher is not None]
        if bound:
            address = ctypes.addressof(ctypes.c_char.from_buffer(rows))
            if self._executor is not None:
                self._executor.unsafe_compute_mask_ptr(bound, address, self._row_bytes, len(matchers))
            else:
                for inner, row in bound:
                    inner.unsafe_compute_mask_ptr(address + row * self._row_bytes, self._row_bytes)
        return bytes(rows)


class Grammars:
    """Grammars of one model's tokenizer. finished: an eventfd that is readable when a compilation has ended."""

    def __init__(self, tokenizer: LLTokenizer | None, why_not: str = "") -> None:
        """Without a tokenizer every grammar is refused, for that reason."""
        self.finished = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._tokenizer, self._why_not = tokenizer, why_not
        self._limits = limits()
        self._known: OrderedDict[str, LLMatcher] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars")  # llguidance gives the GIL back

    def begin(self, grammar: str) -> "Future[Matcher]":
        """Soon a matcher at the grammar's beginning, or GrammarInvalid. Raises that at once where there can be none."""
        if self._tokenizer is None:
            raise GrammarInvalid(self._why_not)
        future = self._thread.submit(self._matcher, self._tokenizer, grammar)
        future.add_done_callback(lambda _: os.eventfd_write(self.finished, 1))
        return future

    def _matcher(self, tokenizer: LLTokenizer, grammar: str) -> Matcher:
        known = self._known.pop(grammar, None) or LLMatcher(tokenizer, grammar, log_level=0, limits=self._limits)
        if known.is_error():
            raise GrammarInvalid(known.get_error())
        self._known[grammar] = known
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return Matcher(known.deep_copy())


def grammars_of(model_dir: Path) -> Grammars:
    """The grammars of a checkpoint's tokenizer."""
    checkpoint = inspect(model_dir)
    vocabulary, eos_ids = checkpoint.config.vocabulary, list(checkpoint.eos_ids)
    try:
        text = (model_dir / "tokenizer.json").read_text()
        slices = LLTokenizer.json_slices()  # made in a third of the time of slices for any grammar
        return Grammars(LLTokenizer(text, n_vocab=vocabulary, eos_token=eos_ids or None, slices=slices))
    except Exception as error:  # whatever a tokenizer can do to a parser; all other requests can be served
        logger.warning("no structured output: llguidance cannot use this tokenizer: %s", error)
        return Grammars(None, f"this model's tokenizer cannot be used for structured output: {error}")
