"""A step whose result has not returned."""

from dataclasses import dataclass, field

from octavo.worker.lane import Members
from octavo.worker.request import Request


@dataclass(slots=True)
class UnderWay:
    """The result will hold one entry for each decoding member, then one for each of `others`.

    others: requests whose prefill ends in this step. last: entries that are their request's last, by length.
    skipped: entries whose request has ended since; their tokens are not shown.
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
