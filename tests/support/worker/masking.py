"""An engine that binds rows as a grammar would: which ids one may sample, and whether any, depends on its length."""

from dataclasses import replace

from support.worker.engine import LocalEngine

from octavo.worker.messages.step import Masks, Step
from octavo.worker.runner.base import Pending


class Masking(LocalEngine):
    def _give(self, step: Step) -> Pending:
        sample, forward = step.sample, step.forward
        ends = [forward.starts[row] + forward.counts[row] for row in sample.rows]
        masked = tuple(entry for entry, end in enumerate(ends) if end % 3)
        size = self._runner.vocabulary
        masks = Masks(step.number, b"".join(allowed(ends[entry], size) for entry in masked))
        return self._runner.issue(replace(step, sample=replace(sample, masked=masked)), lambda _: self.ask(masks))

    def ask(self, masks: Masks) -> Masks:
        return masks


def allowed(end: int, size: int) -> bytes:
    """A third of the ids of a vocabulary, by bits."""
    bits = sum(1 << token for token in range(size) if (token // 2 + end) % 3 == 0)
    return bits.to_bytes(4 * -(-size // 32), "little")
