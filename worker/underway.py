"""A step whose result has not returned, and what its result says."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat

from octavo.worker.lane import Members
from octavo.worker.output import Output
from octavo.worker.request import Finish, Request
from octavo.worker.step import StepResult

NOBODY = Members((), (), (), (), (), ())
_output = partial(tuple.__new__, Output)  # Output._make without its Python call: 256 times a step


@dataclass(slots=True)
class UnderWay:
    """The result will hold one entry for each decoding member, then one for each of `others`.

    others: requests whose prefill ends in this step. last: entries that are their request's last, by length.
    skipped: entries whose request has ended since, or is computed anew; their tokens are not shown.
    """

    number: int
    members: Members
    others: tuple[Request, ...] = ()
    last: set[int] = field(default_factory=set)
    prefill_tokens: int = 0
    skipped: set[int] = field(default_factory=set)

    @property
    def entries(self) -> int:
        return len(self.members.requests) + len(self.others)

    def request(self, entry: int) -> Request:
        decoding = self.members.requests
        return decoding[entry] if entry < len(decoding) else self.others[entry - len(decoding)]

    def skip(self, request: Request) -> None:
        decoding = self.members.requests
        if request in decoding:
            self.skipped.add(decoding.index(request))
        elif request in self.others:
            self.skipped.add(len(decoding) + self.others.index(request))

    def check(self, result: StepResult) -> None:
        """Raises ValueError when it is another step's result, or of another size."""
        if self.number != result.number:
            raise ValueError(f"result of step {result.number}, awaited is {self.number}")
        if len(result.ids) != self.entries:
            raise ValueError(f"step {self.number}: {len(result.ids)} ids for {self.entries} sampled rows")

    def take(self, result: StepResult, stops: Iterable[int]) -> tuple[list[Output], list[int]]:
        """Give the requests their tokens. Returns an output for each entry, and the entries that end their request.

        stops: entries whose token stops somebody, maybe not their own request.
        """
        members, ids = self.members, result.ids
        for append, token in zip(members.appends, ids, strict=False):
            append(token)
        for request, token in zip(self.others, ids[len(members.keys) :], strict=True):
            request.tokens.append(token)
        for entry in {*self.skipped, *result.failed}:
            self.request(entry).tokens.pop()
        keys = members.keys + tuple(request.new.key for request in self.others)
        outputs = list(map(_output, zip(keys, zip(ids, strict=True), repeat(Finish.NOT_FINISHED), repeat(0))))
        special = self.last.union(range(len(members.keys), self.entries), result.failed, stops)
        special -= self.skipped
        for entry in special:
            outputs[entry] = self._special(entry, result)
        return outputs, [entry for entry in special if outputs[entry].finish]

    def _special(self, entry: int, result: StepResult) -> Output:
        """The output of an entry that may not be just one more token."""
        request, token = self.request(entry), result.ids[entry]
        finish = Finish.NOT_FINISHED
        if entry in result.failed:
            finish = Finish.FAILED
        elif token in request.new.stop_ids:
            finish = Finish.STOP
        elif entry in self.last:
            finish = Finish.LENGTH
        shown = (token,) if finish in (Finish.NOT_FINISHED, Finish.LENGTH) else ()
        cached, request.cached = request.cached, 0
        return Output(request.new.key, shown, finish, cached)
