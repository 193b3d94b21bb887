"""Which entries of a history break a promise. Pure: a history and the faults' times in, violations out."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from support.patience import PATIENCE_S
from support.soak.asks import Choice
from support.soak.history import Entry, Part

GRACE_S = 5.0  # between a request's deadline and its end
EDGE_S = 0.5  # the times of a fault and of what it does to a request are of two clocks' reading
# How long a stopped router process may hold its connections: until its parent has found it and replaced it.
HELD_S = 20.0
TOLERANCE = 2e-3  # of log-probabilities: what products in another order change is far less, a wrong token far more
# What docs/api.md has for good requests while groups are lost and the router drains.
EXPECTED = {
    429: {"queue_full"},
    500: {"engine_lost_twice"},
    502: {"stream_cut"},
    503: {"no_capacity", "retries_exhausted", "draining", "too_many_connections", "tokeniser_lost"},
    504: {"deadline_exceeded"},
}
_CUT = set().union(*EXPECTED.values())
TOO_SLOW = "too_slow_to_tokenise"  # 400: right on a machine that is too busy, wrong of a helper that was killed


class Broken(enum.StrEnum):
    """The promise that a violation breaks."""

    LATE = "a request goes on after its deadline"
    LOST = "a connection is lost though no router was hit"
    SILENT = "a stream ends without saying how"
    TWICE = "an answer ends twice"
    STATUS = "a status or code that no fault explains"
    BAD_BODY = "a bad body is not refused as it should be"
    TEXT = "a wrong text"
    FINISH = "a wrong finish reason or length"
    SCORES = "a wrong log-probability"
    USAGE = "a wrong usage"
    FORMAT = "an answer of a wrong format"
    FINAL = "a request after all faults is not answered"


@dataclass(frozen=True, slots=True)
class Violation:
    broken: Broken
    number: int  # the request's
    what: str

    def __str__(self) -> str:
        return f"request {self.number}: {self.broken}: {self.what}"


@dataclass(frozen=True, slots=True)
class Window:
    """Seconds since the soak began."""

    begin_s: float
    end_s: float

    def overlap_s(self, entry: Entry) -> float:
        """Negative: so far apart."""
        return min(self.end_s, entry.ended_s) - max(self.begin_s, entry.begun_s)


@dataclass(frozen=True, slots=True)
class Disturbed:
    """When processes were away whose connections a client may lose, and which refuse what is too slow."""

    router: Sequence[Window] = ()
    helper: Sequence[Window] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """patient: a request is late only by a clock that stands still while the machine is too busy."""

    patient: bool = False
    disturbed: Disturbed = field(default_factory=Disturbed)


def check(history: Iterable[Entry], rules: Rules) -> list[Violation]:
    return [violation for entry in history for violation in _of(entry, rules)]


def check_final(history: Iterable[Entry]) -> list[Violation]:
    """Of requests that nothing disturbs: each is answered, beside all else."""
    return [Violation(Broken.FINAL, one.number, one.outcome) for one in history if not one.whole]


def _of(entry: Entry, rules: Rules) -> Iterator[Violation]:
    found = [*_ending(entry, rules), *((Broken.FORMAT, what) for what in entry.received.malformed)]
    if not entry.received.given_up:
        found += _refusal(entry, rules)
    if entry.received.status == 200 and entry.ask.choices:
        for index, choice in enumerate(entry.ask.choices):
            found += _choice(entry, index, choice, entry.received.parts.get(index, Part()))
        found += _usage(entry)
    return (Violation(broken, entry.number, what) for broken, what in found)


Found = Iterator[tuple[Broken, str]]


def _ending(entry: Entry, rules: Rules) -> Found:
    """Exactly one, and in time."""
    got = entry.received
    held = sum(max(0.0, window.overlap_s(entry)) for window in rules.disturbed.router)
    limit_s = entry.ask.deadline_s + GRACE_S + min(held, HELD_S)
    late_s = entry.took_s - entry.lag_s - limit_s
    if rules.patient and entry.calm_s <= limit_s and late_s <= PATIENCE_S:
        late_s = 0.0
    if got.given_up or late_s > 0:
        yield Broken.LATE, f"{entry.took_s:.1f} s, with a deadline of {entry.ask.deadline_s} s"
    disturbed = any(window.overlap_s(entry) > -EDGE_S for window in rules.disturbed.router)
    if got.broken and not disturbed:
        yield Broken.LOST, got.broken
    ended = got.endings or got.broken or got.left or got.given_up or got.status != 200
    if entry.ask.stream and not ended and not disturbed:
        yield Broken.SILENT, f"after {sum(len(part.text) for part in got.parts.values())} characters"
    if len(got.endings) > 1:
        yield Broken.TWICE, f"{got.endings}"
    finished = [part for part in got.parts.values() if part.finish]
    if got.code and got.status == 200 and entry.ask.choices and len(finished) == len(entry.ask.choices):
        yield Broken.TWICE, f"all choices have finished, then {got.code}"


def _refusal(entry: Entry, rules: Rules) -> Found:
    got, ask = entry.received, entry.ask
    said = f"{got.status} {got.code}: {got.message[:200]}"
    if got.status == 0:
        return
    if (got.status, got.code) == (400, TOO_SLOW):
        if any(window.overlap_s(entry) > -EDGE_S for window in rules.disturbed.helper):
            yield Broken.STATUS, f"{said} (a helper was hit)"
    elif ask.refused:
        overload = got.code in EXPECTED.get(got.status, ()) and got.status in (429, 503)
        if got.status not in ask.refused and not overload:
            yield Broken.BAD_BODY, f"{said}, right: {sorted(ask.refused)}"
    elif got.status != 200 and got.code not in EXPECTED.get(got.status, ()):
        yield Broken.STATUS, said
    elif got.status == 200 and got.code is not None and got.code not in _CUT:
        yield Broken.STATUS, f"an event with {got.code}: {got.message[:200]}"


def _choice(entry: Entry, index: int, right: Choice, got: Part) -> Found:
    ask, where = entry.ask, f"choice {index}"
    if not right.text.startswith(got.text):
        # What an error cuts may end with the beginning of a stop string, which was held back until then.
        if not (entry.received.code and (right.text + right.stop).startswith(got.text)):
            yield Broken.TEXT, f"{where}: {_difference(got.text, right.text)}"
    elif got.finish and (got.text, got.finish) != (right.text, [right.finish]):
        said = f"{got.finish} after {len(got.text)} characters, right {right.finish} after {len(right.text)}"
        yield Broken.FINISH, f"{where}: {said}"
    if entry.whole and not got.finish:
        yield Broken.FINISH, f"{where} has no finish reason"
    if ask.ids and got.finish and len(got.ids) != right.counted:
        yield Broken.FINISH, f"{where}: {len(got.ids)} token ids, right {right.counted}"
    if ask.scores and right.logprobs:
        pairs = enumerate(zip(got.logprobs, right.logprobs, strict=False))
        wrong = next((one for one in pairs if not abs(one[1][0] - one[1][1]) <= TOLERANCE), None)
        if wrong:
            yield Broken.SCORES, f"{where}, token {wrong[0]}: {wrong[1][0]}, right {wrong[1][1]}"
        if got.finish == ["length"] and len(got.logprobs) != right.counted:
            yield Broken.SCORES, f"{where}: {len(got.logprobs)} log-probabilities of {right.counted} tokens"


def _difference(got: str, right: str) -> str:
    at = next((k for k, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), min(len(got), len(right)))
    return f"from character {at} on {got[at : at + 20]!r}, right {right[at : at + 20]!r}"


def _usage(entry: Entry) -> Found:
    ask, got = entry.ask, entry.received
    if extra := set(got.parts) - set(range(len(ask.choices))):
        yield Broken.FORMAT, f"choices {sorted(extra)} beyond the {len(ask.choices)} that were asked for"
    if len(got.usage) > 1 or (got.usage and not ask.usage):
        yield Broken.USAGE, f"{len(got.usage)} of them"
    if not entry.whole or not ask.usage:
        return
    said = got.usage[0] if got.usage else {}
    cached = (said.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    tokens = sum(choice.counted for choice in ask.choices)
    right = {
        "prompt_tokens": ask.prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": ask.prompt_tokens + tokens,
    }
    if {name: said.get(name) for name in right} != right:
        yield Broken.USAGE, f"{said}, right {right}"
    elif not 0 <= cached <= (ask.prompt_tokens if ask.caching else 0):
        yield Broken.USAGE, f"{cached} cached tokens of a prompt of {ask.prompt_tokens}"
