"""A step whose result has not returned, and what its result says."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress

from octavo.worker.messages.output import Output, Scores
from octavo.worker.messages.request import Finish, Request
from octavo.worker.messages.step import StepResult
from octavo.worker.scheduler.decode_batch import Members

NO_MEMBERS = Members((), (), (), (), (), ())


@dataclass(frozen=True, slots=True)
class ScoredPart:
    """Log-probabilities of a prompt that a step returns: up to the token at position `end`, of the request of
    `entry`."""

    entry: int
    end: int


@dataclass(slots=True)
class InFlightStep:
    """The result will hold one entry for each decoding member, then one for each of `others`.

    others: requests whose prefill ends in this step. last: entries that are their request's last, by length.
    skipped: entries whose request has ended since, or is recomputed; their tokens are not shown.
    scored: parts of prompts, in the order of Sample.scored. partial: requests with such a part whose prefill goes on:
    further entries, without a token.
    """

    number: int
    members: Members
    others: tuple[Request, ...] = ()
    last: set[int] = field(default_factory=set)
    prefill_tokens: int = 0
    skipped: set[int] = field(default_factory=set)
    scored: tuple[ScoredPart, ...] = ()
    partial: tuple[Request, ...] = ()

    @property
    def sampled(self) -> int:
        """Entries with a token."""
        return len(self.members.requests) + len(self.others)

    def request(self, entry: int) -> Request:
        decoding = len(self.members.requests)
        if entry < decoding:
            return self.members.requests[entry]
        return self.others[entry - decoding] if entry < self.sampled else self.partial[entry - self.sampled]

    def skip(self, request: Request) -> None:
        decoding = self.members.requests
        if request in decoding:
            self.skipped.add(decoding.index(request))
        elif request in self.others:
            self.skipped.add(len(decoding) + self.others.index(request))
        elif request in self.partial:
            self.skipped.add(self.sampled + self.partial.index(request))

    def check(self, result: StepResult) -> None:
        """Raises ValueError when it is another step's result, or of another size."""
        if self.number != result.number:
            raise ValueError(f"result of step {result.number}, awaited is {self.number}")
        if len(result.ids) != self.sampled:
            raise ValueError(f"step {self.number}: {len(result.ids)} ids for {self.sampled} sampled rows")
        if len(result.prompts) != len(self.scored):
            raise ValueError(f"step {self.number}: {len(result.prompts)} of {len(self.scored)} prompts have scores")

    def take(self, result: StepResult, stops: Iterable[int]) -> dict[int, Output]:
        """Give the requests their tokens. Returns, by entry, outputs that may be more than one more token.

        stops: entries whose token is a stop id of some request, maybe not their own.
        """
        members, ids = self.members, result.ids
        any(map(list.append, members.tokens, ids))  # a loop of C; append returns None
        for request, token in zip(self.others, ids[len(members.keys) :], strict=True):
            request.tokens.append(token)
        failed = {*result.failed, *self._unscored(result)} if self.scored else result.failed
        for entry in {*self.skipped, *failed}:
            if entry < self.sampled:
                self.request(entry).tokens.pop()
        entries = self.sampled + len(self.partial)
        special = self.last.union(range(len(members.keys), entries), failed, stops)
        scores = self._scores(result) if result.scores or self.scored else {}
        special.update(scores)
        special -= self.skipped
        return {entry: self._special(entry, result, entry in failed, scores.get(entry)) for entry in sorted(special)}

    def plain(self, result: StepResult, special: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Keys and tokens of the entries that are neither special nor skipped."""
        keys, ids = self.members.keys, result.ids[: len(self.members.keys)]
        left_out = {*special, *self.skipped}
        if not left_out:
            return keys, ids
        wanted = bytearray(b"\1") * len(keys)
        for entry in left_out:
            if entry < len(keys):
                wanted[entry] = 0
        return tuple(compress(keys, wanted)), tuple(compress(ids, wanted))

    def _unscored(self, result: StepResult) -> list[int]:
        """Entries with a part of a prompt whose logits were not finite."""
        return [part.entry for part, scores in zip(self.scored, result.prompts, strict=True) if not scores]

    def _scores(self, result: StepResult) -> dict[int, Scores]:
        """By entry, where there are any."""
        scores = {entry: Scores(tokens) for entry, tokens in result.scores}
        for part, prompt in zip(self.scored, result.prompts, strict=True):
            tokens = scores[part.entry].tokens if part.entry in scores else b""
            scores[part.entry] = Scores(tokens, prompt)
            scoring = self.request(part.entry).scoring
            if prompt and scoring is not None and part.entry not in self.skipped:
                scoring.returned = part.end
        return scores

    def _special(self, entry: int, result: StepResult, failed: bool, scores: Scores | None) -> Output:
        """The output of an entry that may not be just one more token."""
        request = self.request(entry)
        ids = result.ids[entry : entry + 1]
        finish = Finish.NOT_FINISHED
        if failed:
            finish = Finish.FAILED
        elif ids and ids[0] in request.new.stop_ids:
            finish = Finish.STOP
        elif entry in self.last:
            finish = Finish.LENGTH
        cached = 0
        if entry < self.sampled:
            cached, request.cached = request.cached, 0
        if finish in (Finish.NOT_FINISHED, Finish.LENGTH):
            return Output(request.new.key, ids, finish, cached, scores)
        if scores is not None:  # the token is not shown, the prompt is
            scores = Scores(prompt=scores.prompt) if scores.prompt and not failed else None
        return Output(request.new.key, (), finish, cached, scores)
