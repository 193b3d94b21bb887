"""A device for the scheduler, simulated to the letter: it refuses to compute from what is not there.

Its model is a function of all tokens so far, so that the right answer of every request is known without it. Its KV
cache remembers for each (block, offset) which prefix was written there; a row that reads a block which holds something
else, or which another row of the same step writes, is an error.
"""

from dataclasses import dataclass, field

from octavo.worker.messages.request import Finish, NewRequest
from octavo.worker.messages.step import Step, StepResult

VOCABULARY = 40
CURSED = 97  # a prompt token: such a request's logits become non-finite some time


def prefixes(tokens: list[int], state: int = 1) -> list[int]:
    """For each position, a number that stands for all tokens up to it. state: the number of what stands before them."""
    found = []
    for token in tokens:
        state = hash((state, token))
        found.append(state)
    return found


def next_token(tokens: list[int]) -> int:
    return prefixes(tokens)[-1] % VOCABULARY


def is_finite(tokens: list[int]) -> bool:
    return CURSED not in tokens or prefixes(tokens)[-1] % 5 != 0


def right_answer(new: NewRequest, context_length: int) -> tuple[list[int], Finish]:
    """What a request must show, all in all, were it alone."""
    tokens = [*new.prompt, *new.generated]
    shown: list[int] = []
    while True:
        if not is_finite(tokens):
            return shown, Finish.FAILED
        token = next_token(tokens)
        if token in new.stop_ids:
            return shown, Finish.STOP
        tokens.append(token)
        shown.append(token)
        if len(tokens) == min(len(new.prompt) + new.max_tokens, context_length):
            return shown, Finish.LENGTH


@dataclass
class PagedDevice:
    block_size: int
    pool: dict[int, list[int]] = field(default_factory=dict)  # slot -> tokens
    prompts: dict[int, int] = field(default_factory=dict)  # slot -> tokens that were not sampled
    asks: dict[int, bool] = field(default_factory=dict)  # slot -> whether log-probabilities are wanted
    tables: dict[int, dict[int, int]] = field(default_factory=dict)  # slot -> entry -> block
    kv: dict[tuple[int, int], int] = field(default_factory=dict)  # (block, offset) -> prefix
    known: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)  # slot -> tokens, and their prefixes

    def run(self, step: Step) -> StepResult:
        self._apply(step)
        before = dict(self.kv)
        written: set[int] = set()
        for row in step.forward.rows:
            assert row.count > 0, f"slot {row.slot}: a row without tokens"
            blocks = {self._place(row.slot, position)[0] for position in range(row.start, row.start + row.count)}
            assert written.isdisjoint(blocks), f"slot {row.slot} writes a block that another row writes"
            written |= blocks
            self._check_reads(row.slot, row.start, before)
            self._write(row.slot, row.start, row.count)
        for row in step.forward.rows:
            self._check_reads(row.slot, row.start + row.count, self.kv)
        return self._sample(step)

    def _apply(self, step: Step) -> None:
        for admit in step.forward.admits:
            self.pool[admit.slot] = list(admit.tokens)
            self.prompts[admit.slot] = len(admit.tokens) - admit.generated_before
            self.asks[admit.slot] = admit.sampling.logprobs is not None
            self.tables[admit.slot] = {}
        for append in step.forward.blocks:
            for entry, block in enumerate(append.blocks, append.first):
                self.tables[append.slot][entry] = block

    def _place(self, slot: int, position: int) -> tuple[int, int]:
        return self.tables[slot][position // self.block_size], position % self.block_size

    def _prefixes(self, slot: int) -> list[int]:
        """Of all tokens of the slot; kept, as most of them stay from step to step."""
        tokens, (of, found) = self.pool[slot], self.known.setdefault(slot, ([], []))
        if of != tokens[: len(of)]:
            of.clear()
            found.clear()
        found += prefixes(tokens[len(of) :], found[-1] if found else 1)
        of += tokens[len(of) :]
        return found

    def _check_reads(self, slot: int, count: int, kv: dict[tuple[int, int], int]) -> None:
        for position, prefix in enumerate(self._prefixes(slot)[:count]):
            place = self._place(slot, position)
            assert kv.get(place) == prefix, f"slot {slot} reads another prefix at position {position}, block {place[0]}"

    def _write(self, slot: int, start: int, count: int) -> None:
        tokens = self.pool[slot]
        assert start + count <= len(tokens), f"slot {slot}: position {start + count - 1} has no token yet"
        for position, prefix in enumerate(self._prefixes(slot)[start : start + count], start):
            self.kv[self._place(slot, position)] = prefix

    def _sample(self, step: Step) -> StepResult:
        ids, failed = [], []
        for entry, (index, counter) in enumerate(zip(step.sample.rows, step.sample.counters, strict=True)):
            row = step.forward.rows[index]
            end = row.start + row.count
            assert counter == end - self.prompts[row.slot], f"slot {row.slot}: counter {counter} at position {end}"
            tokens = self.pool[row.slot]
            known = tokens[:end]
            if not is_finite(known):
                failed.append(entry)
            ids.append(next_token(known))
            tokens[end:] = ids[-1:]
        return StepResult(step.number, tuple(ids), tuple(failed), self._scores(step, ids), self._prompts(step))

    def _scores(self, step: Step, ids: list[int]) -> tuple[tuple[int, bytes], ...]:
        """Of the requests that ask: a word that stands for all tokens up to the sampled one."""
        scores = []
        for entry, index in enumerate(step.sample.rows):
            row = step.forward.rows[index]
            if self.asks[row.slot]:
                scores.append((entry, word([*self.pool[row.slot][: row.start + row.count], ids[entry]])))
        return tuple(scores)

    def _prompts(self, step: Step) -> tuple[bytes, ...]:
        parts = []
        for index, first, count in step.sample.scored:
            row = step.forward.rows[index]
            begin = row.start + first + 1
            assert row.start <= begin - 1 and begin - 1 + count <= row.start + row.count, "only what is computed"
            assert begin + count <= self.prompts[row.slot], "only the prompt"
            tokens = self.pool[row.slot]
            parts.append(b"".join(word(tokens[: end + 1]) for end in range(begin, begin + count)))
        return tuple(parts)


def word(tokens: list[int]) -> bytes:
    """What stands for the log-probability of the last of them, four bytes."""
    return (prefixes(tokens)[-1] & 0xFFFFFFFF).to_bytes(4, "little")
