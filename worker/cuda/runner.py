"""A rank on a GPU: the model, its KV pools, and the state of requests by slot, all on the device.

A step costs the host one small copy down, one launch of a graph, and one small copy up:

    changes, rows  --H2D-->  [ prepare | layers | head | sample ]  --D2H-->  ids, failed

Where a row asks for more (wishes.py), a few launches follow the graph.

`issue` returns at once; the next step may be issued before the result of this one is here. Tokens that a step samples
lie on the device, where the next one reads them.
"""

import logging
import time
from dataclasses import dataclass

import torch

from octavo.kernels.backend import choose
from octavo.kernels.cuda import changes
from octavo.kernels.cuda.prepare import State, apply_changes, new_state
from octavo.kernels.cuda.steps import Rows, pack_step, packed_words
from octavo.worker import graphs
from octavo.worker.collective import ALONE
from octavo.worker.config import ConfigError
from octavo.worker.cuda.buffers import Turn, Turns, upload_words
from octavo.worker.cuda.memory import check_weights, kv_budget
from octavo.worker.cuda.passes import Passes
from octavo.worker.cuda.upload import Upload
from octavo.worker.cuda.wishes import Told, Wishes
from octavo.worker.device import DTYPES, ModelInfo, Progress, RunnerConfig, quiet
from octavo.worker.graphs import Graph
from octavo.worker.kv import KvPlan, KvShape, plan_kv
from octavo.worker.models.checkpoint import Checkpoint, inspect
from octavo.worker.models.registry import MODELS
from octavo.worker.models.shard import Shard
from octavo.worker.models.weights import Weights, local_heads
from octavo.worker.request import FEATURES
from octavo.worker.step import EAGER, Admit, Forward, MaskSource, Sample, Step, StepResult, no_masks

_REQUESTS, _BATCH_TOKENS = 256, 8192

logger = logging.getLogger(__name__)


class CudaRunner:
    device = "cuda"

    def __init__(self, config: RunnerConfig, progress: Progress = quiet) -> None:
        """Load weights, measure a step, allocate KV. Raises ModelError, ConfigError, or Fault."""
        if config.place.layout.ranks > 1:
            text = "groups of several GPUs are not supported yet; give 1 of both"
            raise ConfigError(f"parallelism.tensor (--tensor), parallelism.pipeline (--pipeline): {text}")
        self._device = torch.device("cuda", torch.cuda.current_device())
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        checkpoint, shard = inspect(config.model_dir), Shard()
        model = checkpoint.config
        self._dtype = DTYPES[model.dtype if config.dtype == "auto" else config.dtype]
        self._block_size = config.block_size
        self.device_name = f"{torch.cuda.get_device_name(self._device)}, {str(self._dtype).removeprefix('torch.')}"
        self.max_requests = config.max_requests or _REQUESTS
        self.max_batch_tokens = config.max_batch_tokens or _BATCH_TOKENS
        context = config.context(model.context_length)
        heads, kv_heads = local_heads(model, shard)
        shape = KvShape(model.layers, kv_heads, model.head_dim, config.block_size, self._dtype.itemsize)
        check_weights(self._device, checkpoint.size_bytes * self._dtype.itemsize // DTYPES[model.dtype].itemsize)
        with torch.inference_mode():
            begin = time.monotonic()
            upload = Upload(self._device)
            self._model = MODELS[model.architecture](
                Weights(checkpoint, self._dtype, shard, self._device, upload.copy), choose("cuda"), context, ALONE,
                lambda percent: progress("Loading", percent),
            )  # fmt: skip
            upload.finish()
            logger.info("loaded weights: %.2f GB in %.2f s", checkpoint.size_bytes / 1e9, time.monotonic() - begin)
            progress("Warming", 0)
            self._wishes = Wishes(model.vocabulary, self.max_requests, self._device)
            plan = self._plan(config, checkpoint, context, shape, heads)
            self._allocate(plan, shape, heads)
        self.blocks, self.context_length, self.vocabulary = plan.blocks, plan.context_length, model.vocabulary
        self.graphs = [graph.name for graph in graphs.wanted(self.max_requests, self.max_batch_tokens)]
        self.features = list(FEATURES)
        self.model_info = ModelInfo.of(checkpoint, plan.note)
        logger.info("KV cache: %d blocks of %d tokens", self.blocks, self._block_size)
        self._turns = Turns(self.max_requests)
        torch.cuda.synchronize(self._device)

    def _plan(self, config: RunnerConfig, checkpoint: Checkpoint, context: int, shape: KvShape, heads: int) -> KvPlan:
        """Measure the largest step on a KV cache of one block, then size the real one."""
        self._allocate(KvPlan(1, context), shape, heads)
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self._passes.warm_up()
        working = torch.cuda.max_memory_allocated(self._device) - before
        budget = kv_budget(self._device, config.kv_cache_bytes, 2 * working)
        return plan_kv(shape, budget, context, self.max_requests)

    def _allocate(self, plan: KvPlan, shape: KvShape, heads: int) -> None:
        # Zeroed: what no request wrote is masked, and a mask times NaN is NaN.
        size = (2, shape.kv_heads, plan.blocks + 1, shape.block_size, shape.head_dim)
        self._pools = [torch.zeros(size, dtype=self._dtype, device=self._device) for _ in range(shape.layers)]
        width = -(-plan.context_length // shape.block_size)
        self._state: State = new_state(self.max_requests, plan.context_length, width, plan.blocks, self._device)
        self._passes = Passes(
            self._model, self._pools, self._state, heads, self.max_requests, self.max_batch_tokens, self._device
        )

    @torch.inference_mode()
    def issue(self, step: Step, masks: MaskSource = no_masks) -> "Pending":
        """A step without rows captures the graph that it names, if any, and applies its changes."""
        turn = self._turns.take()
        told = None
        self._zero(step.forward.zeroed)
        self._change(step.forward)
        if step.forward.slots:
            told = self._run(step, turn, masks)
        elif step.graph != EAGER:
            self._passes.capture(graphs.parse(step.graph))
        turn.done.record()
        return Pending(self, step, turn, told)

    @torch.inference_mode()
    def logits(self, forward: Forward) -> torch.Tensor:
        """[tokens, vocabulary] of every position of a pass. It waits for nothing, and nothing is sampled."""
        self._change(forward)
        turn = self._turns.take()
        graph = Graph(len(forward.slots), forward.tokens)
        self._lay_out(Rows(forward.slots, forward.starts, forward.counts, (), ()), graph, turn)
        turn.done.record()
        return self._passes.logits(graph)

    def _change(self, forward: Forward) -> None:
        if not forward.admits and not forward.blocks:
            return
        for admit in forward.admits:
            self._wishes.admit(admit)
        admits = list(map(_admit, forward.admits))
        words = changes.pack_changes(admits, forward.blocks, self._state.tables.shape[1], self._state_pad)
        apply_changes(upload_words(words, self._device), self._state)

    @property
    def _state_pad(self) -> int:
        return self._pools[0].shape[2] - 1

    def _run(self, step: Step, turn: Turn, masks: MaskSource) -> Told | None:
        forward, wanted = step.forward, step.sample
        wish = self._wishes.of(step)
        keeps = bool(wanted.scored) or _scattered(forward, wanted)
        eager = step.graph == EAGER or keeps  # a graph keeps the last hidden state of each row alone
        graph = Graph(len(forward.slots), forward.tokens) if eager else graphs.parse(step.graph)
        self._lay_out(Rows(forward.slots, forward.starts, forward.counts, wanted.rows, wanted.counters), graph, turn)
        if keeps:
            output = self._passes.run_and_keep(graph)
        else:
            output = self._passes.run(graph) if eager else self._passes.replay(graph)
        for row, values in zip(turn.up, (output.ids, output.failed), strict=True):
            row[: graph.rows].copy_(values, non_blocking=True)
        return None if wish is None else self._wishes.carry_out(step, wish, output, self._passes, masks)

    def _lay_out(self, rows: Rows, graph: Graph, turn: Turn) -> None:
        words = packed_words(graph.rows, graph.rows)
        pack_step(rows, graph.rows, graph.rows, turn.words[:words])
        self._passes.layout.packed[:words].copy_(turn.down[:words], non_blocking=True)

    def collect(self, step: Step, turn: Turn, told: Told | None) -> StepResult:
        """The result of a step; waits for it."""
        turn.done.synchronize()
        count = len(step.sample.rows)
        drawn = turn.up.numpy()[:, :count]
        if told is not None:
            return told.result(step, drawn)
        ids, failures = drawn
        return StepResult(step.number, tuple(ids.tolist()), tuple(failures.nonzero()[0].tolist()))

    def _zero(self, blocks: tuple[int, ...]) -> None:
        """What failed requests wrote: who gets a block masks what it has not written, and a masked NaN is NaN."""
        if blocks:
            places = torch.tensor(blocks, device=self._device)
            for pool in self._pools:
                pool[:, :, places] = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """A step on its way through the device."""

    runner: CudaRunner
    step: Step
    turn: Turn
    told: Told | None

    def result(self) -> StepResult:
        return self.runner.collect(self.step, self.turn, self.told)


def _scattered(forward: Forward, wanted: Sample) -> bool:
    """Rows of one token each, of which those that are sampled do not come first, as a pass of such rows takes it."""
    return bool(wanted.rows) and wanted.rows[-1] >= len(wanted.rows) and len(forward.slots) == forward.tokens


def _admit(admit: Admit) -> changes.Admit:
    how = admit.sampling
    min_p = 0.0 if how.adjust is None else how.adjust.min_p
    return changes.Admit(admit.slot, admit.tokens, how.temperature, how.top_k, how.top_p, min_p, how.seed)
