"""Requests of all kinds at random times, from a seed: prompts that share prefixes, lengths, sampling, stops, cancels.

A traffic has two waves. The second continues answers of the first, as conversations and resumed requests do: so blocks
of generated tokens are found in the prefix cache, too.
"""

import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from support.worker.engine import Answer

from octavo.shared.hashing import block_hashes
from octavo.shared.sampling_params import SamplingParams
from octavo.worker.messages.request import NewRequest

LONGEST = (100, 400, 2000, 2000)  # tokens of a prompt, of which a traffic has one: short ones are preempted more often
MOST_NEW = 80  # tokens of an answer
SALTS = (b"", b"", b"", b"one", b"another")
PREFIXES = (1, 16, 17, 150, 600, 900, 1200)
TAILS = (1, 1, 3, 16, 20, 90, 280, 800)

Ask = Callable[[NewRequest], Answer]


@dataclass(frozen=True, slots=True)
class Arrival:
    """turn: of the engine's loop, in which it is submitted. alone: what it is answered alone. cancel: after so many
    turns more; None: never."""

    turn: int
    new: NewRequest
    alone: Answer
    cancel: int | None


def arrivals(seed: int, count: int, vocabulary: int, alone: Ask) -> list[Arrival]:
    """`count` arrivals, of about half as many different requests. alone: answers one by itself."""
    rng = random.Random(seed)
    requests = Requests(rng, vocabulary)
    fresh = [(new, alone(new)) for new in requests.fresh(-(-count // 3))]
    later = [(new, alone(new)) for new in requests.continued(fresh, -(-count // 6))]
    waves = (fresh, count // 2), (fresh + later, count - count // 2)
    return list(_at_random_times(rng, [each for wave in waves for each in _repeated(rng, *wave)]))


def _repeated(
    rng: random.Random, some: Sequence[tuple[NewRequest, Answer]], count: int
) -> list[tuple[NewRequest, Answer]]:
    """Each once, if there is room, and some again."""
    chosen = rng.sample(some, min(count, len(some)))
    chosen += rng.choices(some, k=count - len(chosen))
    return rng.sample(chosen, len(chosen))


def _at_random_times(rng: random.Random, some: Sequence[tuple[NewRequest, Answer]]) -> Iterator[Arrival]:
    turn = 0
    for key, (new, answer) in enumerate(some, start=1):
        turn += rng.choice((0, 0, 0, 0, 0, 0, 0, 2, 10, 40))
        cancel = rng.choice((0, 1, 2, 5, 20, 60)) if rng.random() < 0.1 else None
        priority = rng.choice((0, 0, 0, 0, -1, 1))
        yield Arrival(turn, replace(new, key=key, priority=priority), answer, cancel)


class Requests:
    def __init__(self, rng: random.Random, vocabulary: int) -> None:
        self._rng, self._vocabulary = rng, vocabulary
        self._longest = rng.choice(LONGEST)
        self._prefixes = [self._ids(length) for length in PREFIXES]

    def fresh(self, count: int) -> list[NewRequest]:
        """Some of them as the router makes `n` answers to one prompt: they differ by their seeds."""
        rng, found = self._rng, list[NewRequest]()
        while len(found) < count:
            prompt = (*(rng.choice(self._prefixes) if rng.random() < 0.8 else ()), *self._ids(rng.choice(TAILS)))
            new = self._request(prompt[: self._longest])
            copies = rng.choice((2, 3)) if rng.random() < 0.15 and new.sampling.temperature else 1
            for copy in range(copies):
                sampling = replace(new.sampling, seed=new.sampling.seed + copy)
                found.append(replace(new, sampling=sampling))
        return found[:count]

    def continued(self, answered: Sequence[tuple[NewRequest, Answer]], count: int) -> list[NewRequest]:
        """What follows an answer: the next turn of a conversation, or the rest of the same after it was lost."""
        rng, found = self._rng, list[NewRequest]()
        for new, answer in rng.choices(answered, k=count):
            if len(answer.ids) > 1 and rng.random() < 0.4:
                tokens = tuple(answer.ids[: rng.randint(1, len(answer.ids) - 1)])
                found.append(hashed(replace(new, generated=tokens)))
            else:
                prompt = (*new.prompt, *answer.ids, *self._ids(rng.choice(TAILS)))[: self._longest]
                found.append(hashed(replace(self._request(prompt), salt=new.salt)))
        return found

    def _request(self, prompt: Sequence[int]) -> NewRequest:
        rng = self._rng
        stop_ids = frozenset(rng.sample(range(self._vocabulary), rng.choice((1, 5, 40)))) if rng.random() < 0.5 else ()
        most = rng.choice((1, 2, 16, 17, rng.randint(1, 60), rng.randint(1, MOST_NEW)))
        sampling = self._sampling(tuple(stop_ids))
        new = NewRequest(0, tuple(prompt), sampling, most, frozenset(stop_ids), salt=rng.choice(SALTS))
        return hashed(new)

    def _sampling(self, stop_ids: tuple[int, ...]) -> SamplingParams:
        rng = self._rng
        drawn, filtered = rng.random() < 0.6, rng.random() < 0.4
        plain = SamplingParams(
            temperature=rng.choice((0.3, 0.8, 1.0, 1.5)) if drawn else 0.0,
            top_k=rng.choice((0, 1, 20, 300)) if filtered else 0,
            top_p=rng.choice((1.0, 0.9, 0.6)) if filtered else 1.0,
            seed=rng.getrandbits(64),
        )
        adjusted = self._adjusted(plain, stop_ids) if rng.random() < 0.4 else plain
        return replace(
            adjusted,
            logprobs=rng.choice((0, 1, 5, 20)) if rng.random() < 0.3 else None,
            prompt_logprobs=rng.choice((0, 1, 5)) if rng.random() < 0.12 else None,
        )

    def _adjusted(self, plain: SamplingParams, stop_ids: tuple[int, ...]) -> SamplingParams:
        rng, every = self._rng, range(self._vocabulary)
        asked = [rng.random() < 0.3 for _ in range(8)]
        return replace(
            plain,
            min_p=rng.choice((0.02, 0.2)) if asked[0] else 0.0,
            presence_penalty=rng.choice((-1.0, 0.5, 1.5)) if asked[1] else 0.0,
            frequency_penalty=rng.choice((-0.5, 0.3, 1.0)) if asked[2] else 0.0,
            repetition_penalty=rng.choice((0.8, 1.2, 1.6)) if asked[3] else 1.0,
            logit_bias=tuple((token, rng.uniform(-5, 5)) for token in rng.sample(every, 12)) if asked[4] else (),
            allowed_token_ids=tuple(sorted(rng.sample(every, self._vocabulary // 2))) if asked[5] else (),
            bad_words=tuple(tuple(rng.sample(every, rng.choice((1, 1, 2)))) for _ in range(30)) if asked[6] else (),
            min_tokens=rng.choice((1, 5, 30)) if asked[7] and stop_ids else 0,
            forbidden=stop_ids if asked[7] else (),
        )

    def _ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._rng.randrange(self._vocabulary) for _ in range(count))


def hashed(new: NewRequest) -> NewRequest:
    """With the hashes of its full blocks."""
    ids = array("I", (*new.prompt, *new.generated)).tobytes()
    return replace(new, hashes=tuple(block_hashes(ids, new.salt)))
