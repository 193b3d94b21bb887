"""A rank on a GPU: its part of the model, its KV pools, and the state of requests by slot, all on the device.

A step costs the host one small copy down, one launch of a graph, and one small copy up:

    changes, rows  --H2D-->  [ prepare | layers | head | sample ]  --D2H-->  ids, failed

Where a row asks for more (logits_processors.py), a few launches follow the graph.

`issue` returns at once; the next step may be issued before the result of this one is here. Tokens that a step samples
lie on the device, where the next one reads them.

Of a pipeline's stages the first embeds and the last samples; hidden states travel forward, and ids back to the first
stage's token pool (stages.py). The ranks of a stage add up within the graph (collectives.py).
"""

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import torch

from octavo.kernels.backend import choose
from octavo.kernels.cuda.step_layout.prepare import DeviceState, new_state
from octavo.kernels.cuda.step_layout.steps import Rows, pack_step, packed_words
from octavo.kernels.cuda.upload import Upload
from octavo.proto.v1 import group_pb2
from octavo.worker.devices.kv import KvPlan, KvShape, plan_kv
from octavo.worker.devices.memory import threads
from octavo.worker.distributed.collective import ALONE, Gathering, path_of
from octavo.worker.distributed.links import Links
from octavo.worker.errors import ConfigError
from octavo.worker.messages import graphs
from octavo.worker.messages.graphs import Graph
from octavo.worker.messages.step import EAGER, LOCAL, Forward, MaskSource, Sample, Step, StepResult, no_masks
from octavo.worker.models.decoder import Decoder
from octavo.worker.models.folder.checkpoint import Checkpoint, inspect
from octavo.worker.models.sharding.shard import Shard
from octavo.worker.models.weights import Weights, local_heads
from octavo.worker.runner.base import DTYPES, Progress, RunnerConfig, quiet
from octavo.worker.runner.cuda import collectives
from octavo.worker.runner.cuda.buffers import StagingBuffer, StagingBuffers
from octavo.worker.runner.cuda.device_memory import DeviceMemory
from octavo.worker.runner.cuda.head import Head
from octavo.worker.runner.cuda.logits_processors import GPU_FEATURES, CudaLogitsProcessors, PendingExtras
from octavo.worker.runner.cuda.memory import check_weights, default_requests, kv_budget
from octavo.worker.runner.cuda.model_forward import ModelForward
from octavo.worker.runner.cuda.row_share import row_box, row_share
from octavo.worker.runner.cuda.stages import Stages
from octavo.worker.runner.cuda.state_update import update_state, zero
from octavo.worker.topology import RankPosition

# Stages fill and drain with each prompt's first and last step: the more of them, the smaller the steps.
_BATCH_TOKENS, _LEAST_TOKENS = 8192, 2048

Pools = Callable[[int, tuple[int, ...], torch.dtype], list[torch.Tensor]]

logger = logging.getLogger(__name__)


class CudaRunner:
    device = "cuda"

    def __init__(
        self,
        config: RunnerConfig,
        progress: Progress = quiet,
        collective: Gathering = ALONE,
        links: Links | None = None,
    ) -> None:
        """Load weights, measure a step, allocate KV, on the current device. collective: of the stage's ranks, on their
        CPUs; links: None in a group of one stage. Raises ModelError, ConfigError, or Fault."""
        if config.position.layout.per_pod != config.position.layout.tensor:
            raise ConfigError(
                "accelerator.perPod (--ranks-per-pod): on GPUs the ranks of a stage share a pod; leave it out"
            )
        self._device = torch.device("cuda", torch.cuda.current_device())
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        checkpoint, position = inspect(config.model_dir), config.position
        model, shard = checkpoint.config, Shard.at(position)
        shard.check(model)
        self._dtype = DTYPES[model.dtype if config.dtype == "auto" else config.dtype]
        self._block_size = config.block_size
        tokens = max(_BATCH_TOKENS // position.layout.pipeline, _LEAST_TOKENS)
        self.max_requests, self.max_batch_tokens = config.sizes(default_requests(self._device), tokens)
        context = config.context(model.context_length)
        heads = local_heads(model, shard)[0]
        shape = KvShape.of(model, position.layout, config.block_size, self._dtype.itemsize)
        self._layers = len(shard.layers(model))
        check_weights(self._device, shard.parameters(model) * self._dtype.itemsize)
        with torch.inference_mode():
            box = row_box(self.max_requests, model.vocabulary, shard.size, self._dtype.itemsize)
            stage_collective = collectives.on_device(collective, box if shard.last else None)
            self._stages = None if links is None else self._stages_of(links, position, model.hidden)
            self.path, self.collective = path_of(stage_collective), stage_collective.transport
            self.activations = group_pb2.TRANSPORT_UNSPECIFIED if self._stages is None else self._stages.links.transport
            self._memory = DeviceMemory(self._device)
            begin = time.monotonic()
            with closing(Upload(self._device)) as upload:
                hashing = threads(None, ranks=position.layout.per_pod)
                weights = Weights(
                    checkpoint, self._dtype, shard, self._device, upload.copy, hashing, self._memory.weight
                )
                self.digest = weights.digest
                self._model = Decoder(
                    weights, choose("cuda"), context, stage_collective, lambda percent: progress("Loading", percent)
                )
                upload.finish()
            logger.info("loaded weights of %.2f GB in %.2f s", checkpoint.size_bytes / 1e9, time.monotonic() - begin)
            progress("Warming", 0)
            self._head, self._processors = None, None
            if shard.last:
                rows = row_share(stage_collective, box, model.vocabulary, self._dtype)
                self._head = Head(self._model, rows)
                self._processors = CudaLogitsProcessors(model.vocabulary, self.max_requests, self._device, rows)
            plan = self._plan(config, checkpoint, context, shape, heads)
            self._allocate(plan, shape, heads, self._memory.pools)
        self.blocks, self.context_length, self.vocabulary = plan.blocks, plan.context_length, model.vocabulary
        self.device_name = ", ".join(self._traits())
        self.graphs = [graph.name for graph in graphs.wanted(self.max_requests, self.max_batch_tokens)]
        self.features = list(GPU_FEATURES)
        if plan.note:
            logger.warning("%s", plan.note)
        logger.info("KV cache: %d blocks of %d tokens", self.blocks, self._block_size)
        self._staging = StagingBuffers(self.max_requests, position.layout.pipeline)
        torch.cuda.synchronize(self._device)

    def _stages_of(self, links: Links, position: RankPosition, hidden: int) -> Stages:
        arrived = torch.zeros((self.max_batch_tokens, hidden), dtype=self._dtype, device=self._device)
        return Stages(links, position, self.max_requests, arrived)

    def _traits(self) -> list[str]:
        """For people."""
        traits = [torch.cuda.get_device_name(self._device), str(self._dtype).removeprefix("torch.")]
        if self.path != LOCAL:
            traits.append(f"sums by {self.path}")
        if self._stages is not None:
            traits.append(f"stages by {group_pb2.Transport.Name(self.activations).lower()}")
        return traits

    def _plan(self, config: RunnerConfig, checkpoint: Checkpoint, context: int, shape: KvShape, heads: int) -> KvPlan:
        """Measure the largest step on a KV cache of one block, then size the real one."""
        self._allocate(KvPlan(1, context), shape, heads)
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self._model_forward.warm_up()
        working = torch.cuda.max_memory_allocated(self._device) - before
        self._memory.working_bytes = working
        budget = kv_budget(self._device, config.kv_cache_bytes, 2 * working)
        return plan_kv(shape, budget, context, self.max_requests)

    def _allocate(self, plan: KvPlan, shape: KvShape, heads: int, make: Pools | None = None) -> None:
        """make: of KV pools that last."""
        # Zeroed: what no request wrote is masked, and a mask times NaN is NaN.
        size = (2, shape.kv_heads, plan.blocks + 1, shape.block_size, shape.head_dim)
        self._pools = (make or self._short_lived)(self._layers, size, self._dtype)
        width = -(-plan.context_length // shape.block_size)
        self._state: DeviceState = new_state(self.max_requests, plan.context_length, width, plan.blocks, self._device)
        self._model_forward = ModelForward(
            self._model, self._pools, self._state, heads, self.max_requests, self.max_batch_tokens, self._device,
            self._head, None if self._stages is None else self._stages.arrived,
        )  # fmt: skip

    def _short_lived(self, count: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
        return [torch.zeros(shape, dtype=dtype, device=self._device) for _ in range(count)]

    @property
    def copy_bytes(self) -> int:
        return self._memory.copy_bytes

    def prepare_sleep(self) -> None:
        self._memory.prepare()

    def sleep(self, keep_kv: bool) -> int:
        return self._memory.sleep(keep_kv)

    def wake(self) -> int:
        return self._memory.wake()

    @torch.inference_mode()
    def issue(self, step: Step, masks: MaskSource = no_masks) -> "Pending":
        """A step without rows captures the graph that it names, if any, and applies its changes."""
        staging = self._staging.take()
        pending_extras = None
        if self._stages is not None:
            self._stages.settle(step.forward, self._state)
        zero(self._pools, step.forward.zeroed)
        self._update_state(step.forward)
        if step.forward.slots:
            pending_extras = self._run(step, staging, masks)
        elif step.graph != EAGER:
            self._model_forward.capture(graphs.parse(step.graph))
        staging.done.record()
        return Pending(self, step, staging, pending_extras)

    @torch.inference_mode()
    def logits(self, forward: Forward) -> torch.Tensor:
        """[tokens, vocabulary] of every position of a pass. It waits for nothing, and nothing is sampled."""
        self._update_state(forward)
        staging = self._staging.take()
        graph = Graph(len(forward.slots), forward.tokens)
        self._lay_out(Rows(forward.slots, forward.starts, forward.counts, (), ()), graph, staging)
        staging.done.record()
        return self._model_forward.logits(graph)

    def _update_state(self, forward: Forward) -> None:
        if not forward.admits and not forward.blocks:
            return
        for admit in forward.admits:
            if self._processors is not None:
                self._processors.admit(admit)
        update_state(forward, self._state, pad=self._pools[0].shape[2] - 1)

    def _run(self, step: Step, staging: StagingBuffer, masks: MaskSource) -> PendingExtras | None:
        forward, wanted = step.forward, step.sample
        extras = None if self._processors is None else self._processors.of(step)
        all_hidden = bool(wanted.scored) or _scattered(forward, wanted)
        eager = step.graph == EAGER or all_hidden  # a graph keeps the last hidden state of each row alone
        graph = Graph(len(forward.slots), forward.tokens) if eager else graphs.parse(step.graph)
        self._lay_out(Rows(forward.slots, forward.starts, forward.counts, wanted.rows, wanted.counters), graph, staging)
        if self._stages is not None:
            self._stages.receive(step)
        if all_hidden:
            output = self._model_forward.run_all_hidden(graph)
        else:
            output = self._model_forward.run(graph) if eager else self._model_forward.replay(graph)
        if self._stages is not None and self._head is None:
            self._stages.send_hidden(step, output.hidden)
            return None
        assert output.drawn is not None, "the last stage draws"
        buffers = self._model_forward.layout.view(graph)
        pending_extras = None
        if extras is not None and self._processors is not None:
            pending_extras = self._processors.start(step, extras, output, buffers, self._model_forward, masks)
        staging.fetch(output.drawn)
        if self._stages is not None:
            self._stages.send_sampled(step, buffers, output.drawn[0])
        return pending_extras

    def _lay_out(self, rows: Rows, graph: Graph, staging: StagingBuffer) -> None:
        words = packed_words(graph.rows, graph.rows)
        pack_step(rows, graph.rows, graph.rows, staging.words[:words])
        self._model_forward.layout.packed[:words].copy_(staging.down[:words], non_blocking=True)

    def collect(self, step: Step, staging: StagingBuffer, pending_extras: PendingExtras | None) -> StepResult:
        """The result of a step; waits for it."""
        staging.done.synchronize()
        if self._head is None:
            return StepResult(step.number)
        drawn = staging.drawn(len(step.sample.rows))
        if pending_extras is not None:
            return pending_extras.result(step, drawn)
        ids, failures = drawn
        return StepResult(step.number, tuple(ids.tolist()), tuple(failures.nonzero()[0].tolist()))


@dataclass(frozen=True, slots=True)
class Pending:
    """A step on its way through the device."""

    runner: CudaRunner
    step: Step
    staging: StagingBuffer
    pending_extras: PendingExtras | None

    def result(self) -> StepResult:
        return self.runner.collect(self.step, self.staging, self.pending_extras)


def _scattered(forward: Forward, wanted: Sample) -> bool:
    """Rows of one token each, of which the sampled ones do not come first, as a pass of such rows takes it."""
    return bool(wanted.rows) and wanted.rows[-1] >= len(wanted.rows) and len(forward.slots) == forward.tokens
