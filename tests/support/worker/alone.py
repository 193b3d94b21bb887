"""Each request alone, on an engine without a prefix cache, and how its answer beside others differs from that.

Sums of other shapes have other last bits. So log-probabilities are compared within a tolerance, and another token
is accepted where the choice is as close as that: where the request alone, its logits moved by the tolerance in favour
of the other token, takes it too. What follows such a token is another text and is not compared.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from support.worker.engine import Answer, LocalEngine
from support.worker.random_traffic import Arrival

from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.request import NewRequest
from octavo.worker.runner.base import DeviceRunner

TOLERANCE = 1e-4  # of a logit and of a log-probability, where logits are of the order of 1
_RANKS = 3  # by so many may a token's rank differ: others are as likely within the tolerance

Row = tuple[int, tuple[int, ...], tuple[float, ...]]  # rank, ids, log-probabilities: the token's own, then the top


@dataclass(slots=True)
class Compared:
    """close: requests with a token that was as likely as the one alone. largest: difference of a log-probability.
    hits: tokens found in the prefix cache."""

    wrong: list[str]
    requests: int = 0
    tokens: int = 0
    close: int = 0
    largest: float = 0.0
    preemptions: int = 0
    hits: int = 0
    cancelled: int = 0

    def add(self, other: "Compared") -> None:
        self.wrong += other.wrong
        self.requests += other.requests
        self.tokens += other.tokens
        self.close += other.close
        self.largest = max(self.largest, other.largest)
        self.preemptions += other.preemptions
        self.hits += other.hits
        self.cancelled += other.cancelled

    def __str__(self) -> str:
        return (
            f"{len(self.wrong)} of {self.requests} requests wrong, {self.tokens} tokens, {self.close} close choices, "
            f"log-probabilities within {self.largest:.1e}; {self.cancelled} cancelled, {self.preemptions} preemptions, "
            f"{self.hits} tokens found in the prefix cache"
        )


class Alone:
    """Answers one request at a time. Its runner serves nothing else."""

    def __init__(self, runner: DeviceRunner, tolerance: float = TOLERANCE) -> None:
        self._runner, self._tolerance = runner, tolerance

    def __call__(self, new: NewRequest) -> Answer:
        return LocalEngine(self._runner, prefix_caching=False).answer(replace(new, key=1))

    def compare(self, arrivals: Sequence[Arrival], answers: Sequence[Answer], cut: frozenset[int]) -> Compared:
        """cut: keys of requests that were cancelled: their answers are the beginning."""
        found = Compared([])
        for one, answer in zip(arrivals, answers, strict=True):
            found.requests += 1
            found.tokens += len(answer.ids)
            self._compare(one, answer, one.new.key in cut, found)
        return found

    def _compare(self, one: Arrival, answer: Answer, cut: bool, found: Compared) -> None:
        new, alone = one.new, one.alone
        name = f"request {new.key} of {len(new.prompt)} + {len(new.generated)} tokens"
        same = _common(alone.ids, answer.ids)
        if (same < len(answer.ids) or not cut) and (alone.ids, alone.finish) != (answer.ids, answer.finish):
            if not self._close(new, alone, answer, same):
                ends = f"{answer.ids[same : same + 5]} ({answer.finish.name})"
                wanted = f"{alone.ids[same : same + 5]} ({alone.finish.name})"
                found.wrong.append(f"{name}: after {same} tokens {ends}, alone {wanted}; {new}")
                return
            found.close += 1
        sampling, whole = new.sampling, None if cut else len(new.prompt) - 1
        pairs = (
            ("answer", sampling.logprobs, alone.scores, answer.scores, None if cut else len(answer.ids), same),
            ("prompt", sampling.prompt_logprobs, alone.prompt_scores, answer.prompt_scores, whole, whole),
        )
        for what, top, expected, scores, count, first in pairs:
            problem = self._scores_differ(expected, scores, top, count, first, found)
            if problem:
                found.wrong.append(f"{name}: log-probabilities of the {what}: {problem}; {new}")

    def _close(self, new: NewRequest, alone: Answer, answer: Answer, same: int) -> bool:
        """Whether the request alone, moved a little, goes on after `same` tokens as it did beside others."""
        known = (*new.generated, *alone.ids[:same])
        if len(known) >= new.max_tokens:
            return False
        chosen, other = (set(ids[same : same + 1]) or set(new.stop_ids) for ids in (alone.ids, answer.ids))
        for sampling in _moved(new.sampling, chosen, other, self._tolerance):
            moved = self(replace(new, sampling=sampling, generated=known, max_tokens=len(known) + 1))
            if moved.ids == answer.ids[same : same + 1] and moved.ids != alone.ids[same : same + 1]:
                return True
        return False

    def _scores_differ(
        self, one: bytes, other: bytes, top: int | None, count: int | None, first: int | None, found: Compared
    ) -> str:
        """In what the first rows of two lists differ; "" in nothing. count: rows that there must be; None: any. first:
        rows that are compared; None: all that both have."""
        if top is None:
            return "they were not asked for" if one or other else ""
        rows, others = _rows(one, top), _rows(other, top)
        if count is not None and len(others) != count:
            return f"{len(others)} for {count} tokens"
        if first is None and len(others) > len(rows):
            return f"{len(others)}, alone {len(rows)}"
        for at, (row, another) in enumerate(zip(rows[:first], others[:first], strict=False)):
            difference = _row_differs(row, another)
            if difference > self._tolerance:
                return f"at {at} {another}, alone {row}"
            found.largest = max(found.largest, difference)
        return ""


def _moved(sampling: SamplingParams, chosen: set[int], other: set[int], by: float) -> Iterator[SamplingParams]:
    for towards, away in ((other, set[int]()), (set[int](), chosen), (other, chosen)):
        bias = dict(sampling.logit_bias)
        for token in towards | away:
            bias[token] = bias.get(token, 0.0) + (by if token in towards else -by)
        yield replace(sampling, logit_bias=tuple(bias.items()))
    if sampling.top_p < 1:
        yield from (replace(sampling, top_p=sampling.top_p + step) for step in (by, -by))


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip_longest(one, other)) if a != b), len(one))


def _rows(scores: bytes, top: int) -> list[Row]:
    return [(row[0], row[1 : 2 + top], row[2 + top :]) for row in struct.iter_unpack(f"<{2 + top}I{1 + top}f", scores)]


def _row_differs(one: Row, other: Row) -> float:
    """By how much a log-probability; infinite where the tokens are others. Of two likely tokens as likely as each other
    either may stand first, and at the end of the list either may be missing."""
    (rank, ids, values), (other_rank, other_ids, other_values) = one, other
    if ids[0] != other_ids[0] or abs(rank - other_rank) > _RANKS:
        return float("inf")
    largest = max(abs(a - b) for a, b in zip(values, other_values, strict=True))
    known = dict(zip(ids[1:], values[1:], strict=True))
    other_known = dict(zip(other_ids[1:], other_values[1:], strict=True))
    for token in {*known, *other_known}:
        largest = max(largest, abs(known.get(token, values[-1]) - other_known.get(token, other_values[-1])))
    return largest
