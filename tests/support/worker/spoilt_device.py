"""The simulated device with what NaN does to neighbours: rows that read a block in which a request left NaN fail too,
though the position is masked, until the scheduler has the block zeroed."""

from dataclasses import dataclass, field

from support.worker.paged_device import PagedDevice, is_finite

from octavo.worker.messages.step import Row, Step, StepResult


@dataclass
class SpoiltDevice(PagedDevice):
    nan: set[tuple[int, int]] = field(default_factory=set)  # (block, offset)

    def run(self, step: Step) -> StepResult:
        for block in step.forward.zeroed:
            for offset in range(self.block_size):
                self.kv.pop((block, offset), None)
                self.nan.discard((block, offset))
        result = super().run(step)
        spoilt = [index for index, row in enumerate(step.forward.rows) if self._spoils(row, index in step.sample.rows)]
        for index, row in enumerate(step.forward.rows):
            written = {self._place(row.slot, position) for position in range(row.start, row.start + row.count)}
            self.nan = self.nan | written if index in spoilt else self.nan - written
        failed = tuple(entry for entry, index in enumerate(step.sample.rows) if index in spoilt)
        assert set(result.failed) <= set(failed)
        prompts = tuple(
            b"" if scored.row in spoilt else part
            for scored, part in zip(step.sample.scored, result.prompts, strict=True)
        )
        return StepResult(step.number, result.ids, failed, result.scores, prompts)

    def _spoils(self, row: Row, sampled: bool) -> bool:
        """Whether it reads NaN, masked or not, which it has not overwritten itself, or computes it."""
        end = row.start + row.count
        blocks = [self._place(row.slot, position)[0] for position in range(0, end, self.block_size)]
        places = {(block, offset) for block in blocks for offset in range(self.block_size)}
        places -= {self._place(row.slot, position) for position in range(row.start, end)}
        return not places.isdisjoint(self.nan) or (sampled and not is_finite(self.pool[row.slot][:end]))
