"""A rank on a GPU: its part of the model, its KV pools, and the state of requests by slot, all on the device.

A step costs the host one small copy down, one launch of a graph, and one small copy up:

    changes, rows  --H2D-->  [ prepare | layers | head | sample ]  --D2H-->  ids, failed

`issue` returns at once; the next step may be issued before the result of this one is here. Tokens that a step samples
lie on the device, where the next one reads them.

Of a pipeline's stages the first embeds and the last samples; hidden states travel forward, and ids back to the first
stage's token pool (links.py). The ranks of a stage add up within the graph (collectives.py).
"""

import logging
import math
import time
from dataclasses import dataclass

import torch

from octavo.kernels.backend import choose
from octavo.kernels.cuda.changes import Admit, pack_changes
from octavo.kernels.cuda.prepare import State, apply_changes, new_state
from octavo.kernels.cuda.steps import Rows, pack_step, packed_words
from octavo.worker import graphs
from octavo.worker.awaited import Awaited, AwaitedIds, most_awaited
from octavo.worker.collective import ALONE, Collective
from octavo.worker.config import ConfigError
from octavo.worker.cuda import collectives
from octavo.worker.cuda import links as device_links
from octavo.worker.cuda.buffers import Turn, Turns, upload_words
from octavo.worker.cuda.head import Head
from octavo.worker.cuda.memory import check_weights, kv_budget
from octavo.worker.cuda.passes import Passes
from octavo.worker.cuda.upload import Upload
from octavo.worker.device import DTYPES, ModelInfo, Progress, RunnerConfig, quiet
from octavo.worker.graphs import Graph
from octavo.worker.kv import KvPlan, KvShape, plan_kv
from octavo.worker.links import Links
from octavo.worker.models.checkpoint import Checkpoint, inspect
from octavo.worker.models.config import ModelConfig
from octavo.worker.models.registry import MODELS
from octavo.worker.models.shard import Shard
from octavo.worker.models.weights import Weights, local_heads
from octavo.worker.place import Place
from octavo.worker.step import EAGER, LOCAL, Forward, MaskSource, Step, StepResult, no_masks

# Stages fill and drain with each prompt's first and last step: the more of them, the smaller the steps.
_REQUESTS, _BATCH_TOKENS, _LEAST_TOKENS = 256, 8192, 2048

logger = logging.getLogger(__name__)


class CudaRunner:
    device = "cuda"

    def __init__(
        self,
        config: RunnerConfig,
        progress: Progress = quiet,
        collective: Collective = ALONE,
        links: Links | None = None,
    ) -> None:
        """Load weights, measure a step, allocate KV, on the current device. collective: of the stage's ranks, on their
        CPUs; links: None in a group of one stage. Raises ModelError, ConfigError, or Fault."""
        if config.place.layout.per_pod != config.place.layout.tensor:
            raise ConfigError(
                "accelerator.perPod (--ranks-per-pod): on GPUs the ranks of a stage share a pod; leave it out"
            )
        self._device = torch.device("cuda", torch.cuda.current_device())
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        checkpoint, place = inspect(config.model_dir), config.place
        model, shard = checkpoint.config, Shard.at(place)
        shard.check(model)
        self._dtype = DTYPES[model.dtype if config.dtype == "auto" else config.dtype]
        self._block_size = config.block_size
        self.max_requests = config.max_requests or _REQUESTS
        self.max_batch_tokens = config.max_batch_tokens or max(_BATCH_TOKENS // place.layout.pipeline, _LEAST_TOKENS)
        context = config.context(model.context_length)
        heads = local_heads(model, shard)[0]
        shape = KvShape.of(model, place.layout, config.block_size, self._dtype.itemsize)
        self._layers = len(shard.layers(model))
        check_weights(self._device, shard.parameters(model) * self._dtype.itemsize)
        with torch.inference_mode():
            together, self.path = collectives.on_device(collective)
            self._link(links, config.place, model.hidden)
            begin = time.monotonic()
            upload = Upload(self._device)
            self._model = MODELS[model.architecture](
                Weights(checkpoint, self._dtype, shard, self._device, upload.copy), choose("cuda"), context, together,
                lambda percent: progress("Loading", percent),
            )  # fmt: skip
            upload.finish()
            logger.info("loaded weights of %.2f GB in %.2f s", checkpoint.size_bytes / 1e9, time.monotonic() - begin)
            progress("Warming", 0)
            self._head = self._head_of(model, shard, together) if shard.last else None
            plan = self._plan(config, checkpoint, context, shape, heads)
            self._allocate(plan, shape, heads)
        self.blocks, self.context_length, self.vocabulary = plan.blocks, plan.context_length, model.vocabulary
        self.device_name = ", ".join(self._traits())
        self.graphs = [graph.name for graph in graphs.wanted(self.max_requests, self.max_batch_tokens)]
        self.features = list[str]()  # its kernels sample by temperature, top_k and top_p alone
        self.model_info = ModelInfo.of(checkpoint, plan.note)
        logger.info("KV cache: %d blocks of %d tokens", self.blocks, self._block_size)
        self._turns = Turns(self.max_requests, place.layout.pipeline)
        self._redrawn: set[int] = set()  # slots of requests whose draws need sums over the ranks
        torch.cuda.synchronize(self._device)

    def _link(self, links: Links | None, place: Place, hidden: int) -> None:
        """What a pipeline needs: the ways to other stages, and where hidden states arrive."""
        self._links: device_links.DeviceLinks | None = None
        self._arrived: torch.Tensor | None = None
        self._awaited: AwaitedIds | None = None
        if links is None:
            return
        largest = self.max_batch_tokens, hidden
        sizes = device_links.Sizes(self.max_requests, math.prod(largest) * self._dtype.itemsize)
        self._links = device_links.on_device(links, place, sizes)
        if place.first:
            self._awaited = AwaitedIds(self._take_in, most_awaited(place.layout))
        else:
            self._arrived = torch.zeros(largest, dtype=self._dtype, device=self._device)

    def _head_of(self, model: ModelConfig, shard: Shard, together: Collective) -> Head:
        columns = shard.vocabulary(model.vocabulary)
        rows = self.max_requests if shard.size > 1 else 0
        logits = torch.empty((rows, columns.stop - columns.start), dtype=self._dtype, device=self._device)
        return Head(self._model, model.vocabulary, together, logits)

    def _traits(self) -> list[str]:
        """For people."""
        traits = [torch.cuda.get_device_name(self._device), str(self._dtype).removeprefix("torch.")]
        if self.path != LOCAL:
            traits.append(f"sums by {self.path}")
        if self._links is not None:
            traits.append(f"stages by {self._links.name}")
        return traits

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
        self._pools = [torch.zeros(size, dtype=self._dtype, device=self._device) for _ in range(self._layers)]
        width = -(-plan.context_length // shape.block_size)
        self._state: State = new_state(self.max_requests, plan.context_length, width, plan.blocks, self._device)
        self._passes = Passes(
            self._model, self._pools, self._state, heads, self.max_requests, self.max_batch_tokens, self._device,
            self._head, self._arrived,
        )  # fmt: skip

    @torch.inference_mode()
    def issue(self, step: Step, masks: MaskSource = no_masks) -> "Pending":
        """A step without rows captures the graph that it names, if any, and applies its changes. No row is bound by a
        grammar: this device does not offer it."""
        turn = self._turns.take()
        if self._awaited is not None:
            self._awaited.settle(step.forward)
        self._zero(step.forward.zeroed)
        self._change(step.forward)
        if step.forward.slots:
            self._run(step, turn)
        elif step.graph != EAGER:
            self._passes.capture(graphs.parse(step.graph))
        turn.done.record()
        return Pending(self, step, turn)

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
            redraws = self._head is not None and self._head.redraws(admit.sampling)
            (self._redrawn.add if redraws else self._redrawn.discard)(admit.slot)
        admits = [
            Admit(
                admit.slot, admit.tokens, admit.sampling.temperature, admit.sampling.top_k, admit.sampling.top_p,
                seed=admit.sampling.seed,
            )
            for admit in forward.admits
        ]  # fmt: skip
        words = pack_changes(admits, forward.blocks, self._state.tables.shape[1], self._state_pad)
        apply_changes(upload_words(words, self._device), self._state)

    @property
    def _state_pad(self) -> int:
        return self._pools[0].shape[2] - 1

    def _run(self, step: Step, turn: Turn) -> None:
        forward, wanted = step.forward, step.sample
        graph = Graph(len(forward.slots), forward.tokens) if step.graph == EAGER else graphs.parse(step.graph)
        self._lay_out(Rows(forward.slots, forward.starts, forward.counts, wanted.rows, wanted.counters), graph, turn)
        if self._links is not None and self._arrived is not None:
            self._links.receive_hidden(step.number, self._arrived[: forward.tokens])
        output = self._passes.run(graph) if step.graph == EAGER else self._passes.replay(graph)
        if output.hidden is not None:
            self._hand_on(step, output.hidden)
            return
        assert self._head is not None and output.ids is not None and output.failed is not None
        buffers = self._passes.layout.view(graph)
        if self._redrawn:
            again = [entry for entry, row in enumerate(wanted.rows) if forward.slots[row] in self._redrawn]
            self._head.redraw(output.ids, again, buffers, self._state)
        if self._links is not None and wanted.rows:
            self._links.send_sampled(step.number, buffers, output.ids, len(wanted.rows))
        for row, values in zip(turn.up, (output.ids, output.failed), strict=True):
            row[: graph.rows].copy_(values, non_blocking=True)

    def _hand_on(self, step: Step, hidden: torch.Tensor) -> None:
        assert self._links is not None
        self._links.send_hidden(step.number, hidden[: step.forward.tokens])
        if self._awaited is not None:
            self._awaited.expect(step)

    def _take_in(self, awaited: Awaited) -> None:
        assert self._links is not None
        self._links.take_sampled(awaited, self._state)

    def _lay_out(self, rows: Rows, graph: Graph, turn: Turn) -> None:
        words = packed_words(graph.rows, graph.rows)
        pack_step(rows, graph.rows, graph.rows, turn.words[:words])
        self._passes.layout.packed[:words].copy_(turn.down[:words], non_blocking=True)

    def collect(self, step: Step, turn: Turn) -> StepResult:
        """The result of a step; waits for it."""
        turn.done.synchronize()
        if self._head is None:
            return StepResult(step.number)
        count = len(step.sample.rows)
        ids, failures = turn.up.numpy()[:, :count]
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

    def result(self) -> StepResult:
        return self.runner.collect(self.step, self.turn)
