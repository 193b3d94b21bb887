"""Answers with more than text: log-probabilities, ids, the prompt, usage in every event; and stop strings that need
more than a cut. generation.py serves requests without details, at no cost of this code.

A token goes out once its text is shown; one without text of its own goes with the next that has some:

    tokens   | a | b | half | char | st | op | ...      stop string "stop"
    out      | a | b | half + char |                    never: st, op
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.router.answers.answer import Answer
from octavo.router.answers.delta import Delta
from octavo.router.answers.generation import Generation
from octavo.router.jobs.generation import LENGTH
from octavo.router.text.detokenise import Detokeniser
from octavo.router.text.logprobs import Scored, TokenEntry, unpack
from octavo.router.text.stops import StopFinder


@dataclass(frozen=True, slots=True)
class Details:
    """The details that one generation shows.

    echo: the prompt's text, shown before the answer. prompt_ids: shown. top, prompt_top: what the engine was asked for;
    None: nothing. prompt_table: the prompt's log-probabilities are shown apart from the text. min_tokens: stop strings
    count after so many. drop: the engine's one token is not shown (max_tokens 0). reader: makes a detokenizer of
    the prompt.
    """

    reader: Callable[[], Detokeniser]
    echo: str | None = None
    first_id: int = 0
    prompt_ids: tuple[int, ...] | None = None
    top: int | None = None
    prompt_top: int | None = None
    prompt_table: bool = False
    min_tokens: int = 0
    include_stop: bool = False
    continuous_usage: bool = False
    drop: bool = False


class DetailedGeneration(Generation):
    """The Sink of one job whose answer shows details."""

    __slots__ = (
        "_base",
        "_details",
        "_echoed",
        "_entries",
        "_ids",
        "_made",
        "_prompt",
        "_prompt_ids",
        "_read",
        "_reader",
        "_scored",
        "_shown",
        "_text",
        "_textless",
        "_waiting",
    )  # fmt: skip

    def __init__(
        self, answer: Answer, detokeniser: Callable[[], Detokeniser], stop: Sequence[str], details: Details
    ) -> None:
        self._details = details
        super().__init__(answer, detokeniser, stop)

    def held(self) -> Delta | None:
        """Text held back as the beginning of a stop string, with its tokens."""
        if not self.over and self._finder is not None:
            text = self._finder.flush()
            self._text += text
            self._shown += len(text)
            self._place_shown(cut=False, ended=False)
        return self._take_delta() if not self.over and self._shows else None

    def _begin(self) -> None:
        super()._begin()
        details = self._details
        if self._stop:
            self._finder = StopFinder(self._stop, details.include_stop)
        echo = details.echo or ""
        self._text, self._prompt_ids = echo, details.prompt_ids  # these and the next two: of the next delta
        self._entries: list[TokenEntry] = []
        self._ids: list[int] = []
        self._prompt = b""  # its packed log-probabilities
        self._reader = details.reader() if self._echoes_scores else None
        self._echoed = 0  # tokens of the prompt that are shown with theirs
        self._read = 0  # and their characters
        self._base = len(echo)
        self._made = self._shown = 0  # characters of the answer
        self._scored: deque[Scored] = deque()  # of ids that are to come
        self._waiting: deque[tuple[TokenEntry, int]] = deque()  # and where its text ends
        self._textless: list[TokenEntry] = []

    @property
    def _echoes_scores(self) -> bool:
        return self._details.echo is not None and self._details.top is not None

    def scores(self, tokens: bytes, prompt: bytes) -> None:
        if self.over:
            return
        details = self._details
        if prompt and details.prompt_top is not None:
            if details.prompt_table:
                self._prompt += prompt
            if self._echoes_scores:
                self._echo(unpack(prompt, details.prompt_top))
                self._send()
        if tokens and details.top is not None:
            self._scored.extend(unpack(tokens, details.top))

    def tokens(self, ids: Sequence[int], finish: int, cached: int) -> None:
        if self.over or not (ids or finish):
            return
        details = self._details
        if not self._goes_on(finish, cached):
            return
        if self._echoes_scores and not self._echoed:
            self._echo(())  # a prompt of one token
        for token in ids if not details.drop else ():
            if self._take(token):
                self._last("stop")
                self._cancel()
                return
        if finish:
            hit = self._show(self._detokeniser.flush(), ended=True)
            self._last("stop" if hit or (finish != LENGTH and not details.drop) else "length")
        elif self._shows:
            self._send()

    def _echo(self, scored: Sequence[Scored]) -> None:
        if not self._echoed:
            self._place_prompt(self._details.first_id, None)
        for one in scored:
            self._place_prompt(one.id, one)

    def _place_prompt(self, token: int, scored: Scored | None) -> None:
        assert self._reader is not None
        self._entries.append(TokenEntry(token, min(self._read, self._base), scored))
        self._read += len(self._reader.push((token,)))
        self._echoed += 1

    def _take(self, token: int) -> bool:
        """Take one generated id; True when a stop string is complete."""
        self.count += 1
        self._answer.tally.completion_tokens += 1
        self._ids.append(token)
        text = self._detokeniser.push((token,))
        if self._details.top is not None:
            self._textless.append(TokenEntry(token, self._base + self._made, self._scored.popleft()))
        if text:
            self._made += len(text)
            self._settle()
        return self._show(text)

    def _settle(self) -> None:
        """Tokens without text of their own end where the text now ends."""
        self._waiting.extend((entry, self._made) for entry in self._textless)
        self._textless.clear()

    def _show(self, text: str, ended: bool = False) -> bool:
        hit = False
        finder = self._finder
        if finder is not None and self.count > self._details.min_tokens:
            text, hit = finder.push(text)
            if ended and not hit:
                text += finder.flush()
        self._text += text
        self._shown += len(text)
        if ended and not hit:
            self._settle()
        self._place_shown(cut=hit, ended=ended and not hit)
        return hit

    def _place_shown(self, cut: bool, ended: bool) -> None:
        while self._waiting and self._is_shown(*self._waiting[0], cut=cut, ended=ended):
            self._entries.append(self._waiting.popleft()[0])

    def _is_shown(self, entry: TokenEntry, end: int, cut: bool, ended: bool) -> bool:
        return ended or end <= self._shown or (cut and entry.offset - self._base < self._shown)

    @property
    def _shows(self) -> bool:
        return bool(self._text or self._entries)

    def _send(self) -> None:
        self._answer.writer.delta(self.index, self._take_delta())

    def _take_delta(self) -> Delta:
        delta = Delta(self._text, entries=self._entries, ids=self._ids, prompt_ids=self._prompt_ids)
        self._text, self._entries, self._ids, self._prompt_ids = "", [], [], None
        if self._details.continuous_usage:
            delta.usage = self._answer.usage()
        return delta

    def _last(self, reason: str) -> None:
        self.over = True
        delta = self._take_delta()
        if self._details.prompt_table:
            delta.prompt_scores = self._prompt
        self._answer.writer.finish(self.index, delta, reason)
        self._answer.finished()
