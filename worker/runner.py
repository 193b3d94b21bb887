"""A rank's device side: the model, its KV pools, and the state of requests by slot. It runs steps in order.

tokens   [slots, context]   ids; a sampled one is written where the next step reads it
tables   [slots, blocks]    KV blocks of each request, padded with the block that nobody writes
temperature, top_k, top_p, seeds   [slots]
"""

from dataclasses import dataclass

import torch

from octavo.kernels.backend import choose
from octavo.worker.batch import State, make_batch
from octavo.worker.device import DTYPES, ModelInfo, Progress, RunnerConfig, quiet
from octavo.worker.kv import KvPlan, KvShape, plan_kv
from octavo.worker.memory import kv_cache_bytes, threads
from octavo.worker.models.checkpoint import inspect
from octavo.worker.models.registry import MODELS
from octavo.worker.models.shard import Shard
from octavo.worker.models.weights import Weights, local_heads
from octavo.worker.sampler import Draw, sample
from octavo.worker.step import Admit, Blocks, Forward, Sample, Step, StepResult

_REQUESTS, _BATCH_TOKENS = 64, 512


@dataclass(frozen=True, slots=True)
class Done:
    """A step that has run already."""

    answer: StepResult

    def result(self) -> StepResult:
        return self.answer


class Runner:
    def __init__(self, config: RunnerConfig, progress: Progress = quiet) -> None:
        """Load weights and allocate KV. Raises ModelError, or ValueError naming the setting that cannot work."""
        torch.set_num_threads(threads(config.threads))
        checkpoint = inspect(config.model_dir)
        model, shard = checkpoint.config, Shard()
        self._dtype = DTYPES["float32" if config.dtype == "auto" else config.dtype]
        self._block_size = config.block_size
        kv_heads = local_heads(model, shard)[1]
        shape = KvShape(model.layers, kv_heads, model.head_dim, config.block_size, self._dtype.itemsize)
        self.max_requests = config.max_requests or _REQUESTS
        self.max_batch_tokens = config.max_batch_tokens or _BATCH_TOKENS
        self.device, self.graphs = "cpu", list[str]()
        self.device_name = f"CPU, {torch.get_num_threads()} threads, {str(self._dtype).removeprefix('torch.')}"
        context = config.context(model.context_length)
        plan = plan_kv(shape, kv_cache_bytes(config.kv_cache_bytes), context, self.max_requests)
        with torch.inference_mode():
            self._model = MODELS[model.architecture](
                model,
                Weights(checkpoint, self._dtype, shard),
                choose(config.backend),
                plan.context_length,
                shard,
                lambda percent: progress("Loading", percent),
            )
            self._allocate(plan, shape)
        self.blocks = plan.blocks
        self.context_length = plan.context_length
        self.vocabulary = model.vocabulary
        self.model_info = ModelInfo.of(checkpoint, plan.note)

    def _allocate(self, plan: KvPlan, shape: KvShape) -> None:
        # Zeroed: what no request wrote is masked, and a mask times NaN is NaN.
        size = (2, shape.kv_heads, plan.blocks + 1, shape.block_size, shape.head_dim)
        self._pools = [torch.zeros(size, dtype=self._dtype) for _ in range(shape.layers)]
        slots, width = self.max_requests, -(-plan.context_length // shape.block_size)
        # One position more than the context: the token sampled at the last one has a place.
        tokens = torch.zeros((slots, plan.context_length + 1), dtype=torch.int64)
        tables = torch.full((slots, width), plan.blocks, dtype=torch.int64)
        self._state = State(tokens, tables, shape.block_size, self._dtype)
        self._temperature = torch.zeros(slots)
        self._top_k = torch.zeros(slots, dtype=torch.int64)
        self._top_p = torch.ones(slots)
        self._seeds = torch.zeros(slots, dtype=torch.int64)

    def issue(self, step: Step) -> Done:
        return Done(self.run(step))

    def run(self, step: Step) -> StepResult:
        """Forward, then sample. A step without rows only applies its changes."""
        hidden = self.forward(step.forward)
        ids, failed = self.sample(step, hidden)
        return StepResult(step.number, ids, failed)

    @torch.inference_mode()
    def forward(self, forward: Forward) -> torch.Tensor | None:
        """Apply the changes, run the layers; [rows, hidden] of each row's last position, None without rows."""
        for admit in forward.admits:
            self._admit(admit)
        for blocks in forward.blocks:
            self._append(blocks)
        if not forward.slots:
            return None
        return self._model.forward(make_batch(forward, self._state), self._pools)

    def _admit(self, admit: Admit) -> None:
        slot, sampling = admit.slot, admit.sampling
        self._state.tokens[slot, : len(admit.tokens)] = torch.tensor(admit.tokens)
        self._state.tables[slot] = self.blocks
        self._temperature[slot] = sampling.temperature
        self._top_k[slot] = sampling.top_k
        self._top_p[slot] = sampling.top_p
        self._seeds[slot] = _signed(sampling.seed)

    def _append(self, blocks: Blocks) -> None:
        end = blocks.first + len(blocks.blocks)
        self._state.tables[blocks.slot, blocks.first : end] = torch.tensor(blocks.blocks)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, vocabulary], float32, of what `forward` returned."""
        return self._model.logits(hidden).float()

    @torch.inference_mode()
    def sample(self, step: Step, hidden: torch.Tensor | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(ids, failed) of the rows that step.sample names; the ids are in the token pool then."""
        wanted: Sample = step.sample
        if not wanted.rows or hidden is None:
            return (), ()
        rows = torch.tensor(wanted.rows)
        slots = torch.tensor(step.forward.slots)[rows]
        ends = torch.tensor([step.forward.starts[row] + step.forward.counts[row] for row in wanted.rows])
        logits = self.logits(hidden if len(wanted.rows) == hidden.shape[0] else hidden[rows])
        ids, finite = sample(logits[:, : self.vocabulary], self._draw(slots, wanted))
        self._state.tokens[slots, ends] = ids
        failed = tuple((~finite).nonzero().squeeze(1).tolist())
        for entry in failed:
            self._clean(int(slots[entry]))
        return tuple(ids.tolist()), failed

    def _draw(self, slots: torch.Tensor, wanted: Sample) -> Draw:
        return Draw(
            temperature=self._temperature[slots],
            top_k=self._top_k[slots],
            top_p=self._top_p[slots],
            seeds=self._seeds[slots],
            counters=torch.tensor(wanted.counters),
        )

    def _clean(self, slot: int) -> None:
        """Zero a failed request's KV: who gets its blocks masks what it has not written, and a masked NaN is NaN."""
        blocks = self._state.tables[slot]
        for pool in self._pools:
            pool[:, :, blocks] = 0


def _signed(seed: int) -> int:
    """The low 64 bits as int64."""
    low = seed & ((1 << 64) - 1)
    return low - (1 << 64) if low >= 1 << 63 else low
