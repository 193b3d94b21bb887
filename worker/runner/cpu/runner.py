"""A rank on a CPU: its part of the model, its KV pools, and the state of requests by slot. It runs steps in order.

tokens   [slots, context]   ids; a sampled one is written where the next step reads it: on the first stage, whose
                            steps embed it, and on the last, whose penalties count it
tables   [slots, blocks]    KV blocks of each request, padded with the block that is never written
temperature, top_k, top_p, seeds   [slots]

Of a pipeline's stages the first embeds, the last samples; forward travel hidden states, and back the ids:

    changes, rows -> [pending_tokens] -> embed, or receive -> layers -> send, or head -> sample -> ids to first stage
"""

import logging
from dataclasses import dataclass

import torch

from octavo.kernels.backend import choose
from octavo.proto.v1 import group_pb2
from octavo.worker.devices.kv import KvPlan, KvShape, plan_kv
from octavo.worker.devices.memory import kv_cache_bytes, threads
from octavo.worker.distributed.collective import ALONE, Gathering, path_of
from octavo.worker.distributed.links import Links, Sampled
from octavo.worker.errors import UNREADABLE, CannotWake, ModelError
from octavo.worker.messages.request import FEATURES
from octavo.worker.messages.step import Admit, Blocks, Forward, MaskSource, Sample, Step, StepResult, no_masks
from octavo.worker.models.decoder import Decoder
from octavo.worker.models.folder.checkpoint import inspect
from octavo.worker.models.sharding.shard import Shard
from octavo.worker.runner.base import DTYPES, Progress, RunnerConfig, quiet
from octavo.worker.runner.cpu.batch import SlotState, make_batch
from octavo.worker.runner.cpu.loading import ModelLoader
from octavo.worker.runner.cpu.logits_processors import LogitsProcessors
from octavo.worker.runner.cpu.logprobs import Logprobs
from octavo.worker.runner.cpu.masks import bind
from octavo.worker.runner.cpu.sampled import receive_tokens
from octavo.worker.runner.cpu.sampler import Draw, Vocabulary, sample
from octavo.worker.runner.pending_tokens import PendingTokens, most_pending

_REQUESTS, _BATCH_TOKENS = 64, 512
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """A step that has run already."""

    answer: StepResult

    def result(self) -> StepResult:
        return self.answer


class Runner:
    def __init__(
        self,
        config: RunnerConfig,
        progress: Progress = quiet,
        collective: Gathering = ALONE,
        links: Links | None = None,
    ) -> None:
        """Load weights and allocate KV; links: None in a group of one stage. Raises ModelError, or ConfigError."""
        layout = config.position.layout
        assert (collective.rank, collective.size) == (config.position.tp_rank, layout.tensor)
        assert (links is None) == (layout.pipeline == 1)
        torch.set_num_threads(threads(config.threads, ranks=layout.per_pod))
        checkpoint = inspect(config.model_dir)
        model, self._shard = checkpoint.config, Shard.at(config.position)
        self._shard.check(model)
        self._dtype = DTYPES["float32" if config.dtype == "auto" else config.dtype]
        self._links, self._layers = links, len(self._shard.layers(model))
        self._model_bytes = self._shard.parameters(model) * self._dtype.itemsize
        shape = KvShape.of(model, layout, config.block_size, self._dtype.itemsize)
        self.max_requests, self.max_batch_tokens = config.sizes(_REQUESTS, _BATCH_TOKENS)
        self.device, self.graphs, self.features = "cpu", list[str](), list(FEATURES)
        self.path, self.collective = path_of(collective), collective.transport
        self.activations = group_pb2.TRANSPORT_UNSPECIFIED if links is None else links.transport
        self.device_name = f"CPU, {torch.get_num_threads()} threads, {str(self._dtype).removeprefix('torch.')}"
        context = config.context(model.context_length)
        budget = kv_cache_bytes(config.kv_cache_bytes, ranks=layout.per_pod)
        plan = plan_kv(shape, budget, context, self.max_requests)
        self._loader = ModelLoader(checkpoint, self._dtype, self._shard, choose(config.backend), collective)
        self._pool_size = (2, shape.kv_heads, plan.blocks + 1, shape.block_size, shape.head_dim)
        with torch.inference_mode():
            loaded = self._loader.load(plan.context_length, lambda percent: progress("Loading", percent))
            self._model: Decoder | None = loaded
            self._pools = self._new_pools()
            self._allocate(plan, shape)
        self.digest = self._loader.digest
        self.blocks = plan.blocks
        self.context_length = plan.context_length
        self.vocabulary = model.vocabulary
        if plan.note:
            logger.warning("%s", plan.note)
        self._part = Vocabulary(model.vocabulary, self._shard.vocabulary(model.vocabulary).start, collective)
        self._processors = LogitsProcessors(self._part, self._state.tokens)
        self._logprobs = Logprobs(self._part, self._state.tokens)
        self._pending: PendingTokens | None = None
        if links is not None and self._shard.first:
            self._pending = PendingTokens(most_pending(layout))

    def _new_pools(self) -> list[torch.Tensor]:
        # Zeroed: what no request wrote is masked, and a mask times NaN is NaN.
        return [torch.zeros(self._pool_size, dtype=self._dtype) for _ in range(self._layers)]

    def _allocate(self, plan: KvPlan, shape: KvShape) -> None:
        slots, width = self.max_requests, -(-plan.context_length // shape.block_size)
        # One position more than the context: the token sampled at the last one has a place.
        tokens = torch.zeros((slots, plan.context_length + 1), dtype=torch.int64)
        tables = torch.full((slots, width), plan.blocks, dtype=torch.int64)
        self._state = SlotState(tokens, tables, shape.block_size, self._dtype)
        self._temperature = torch.zeros(slots)
        self._top_k = torch.zeros(slots, dtype=torch.int64)
        self._top_p = torch.ones(slots)
        self._seeds = torch.zeros(slots, dtype=torch.int64)

    @property
    def copy_bytes(self) -> int:
        return 0

    def prepare_sleep(self) -> None:
        """Nothing: a model that is woken is read from its files."""

    def sleep(self, keep_kv: bool) -> int:
        freed = 0
        if self._model is not None:
            freed, self._model = self._model_bytes, None
        if not keep_kv:
            freed += sum(pool.nbytes for pool in self._pools)
            self._pools = []
        return freed

    @torch.inference_mode()
    def wake(self) -> int:
        model, pools, taken = self._model, self._pools, 0
        try:
            if model is None:
                taken, model = self._model_bytes, self._loader.load_again()
            if not pools:
                pools = self._new_pools()
                taken += sum(pool.nbytes for pool in pools)
        except (MemoryError, RuntimeError) as error:
            raise CannotWake(f"{str(error) or 'out of memory'}; free memory of the host, then wake it again") from error
        except OSError as error:
            raise CannotWake(f"{error}; wake it again once its files can be read") from error
        except ModelError as error:
            if error.reason != UNREADABLE:
                raise
            raise CannotWake(f"{error}; wake it again once that is mended") from error
        self._model, self._pools = model, pools
        return taken

    def issue(self, step: Step, masks: MaskSource = no_masks) -> Done:
        return Done(self.run(step, masks))

    def run(self, step: Step, masks: MaskSource = no_masks) -> StepResult:
        """This stage's part of the step. One without rows only applies its changes."""
        hidden = self.forward(step)
        if hidden is None:
            return StepResult(step.number)
        return self.sample(step, hidden, masks)

    @torch.inference_mode()
    def forward(self, step: Step) -> torch.Tensor | None:
        """Apply the changes, run the layers. On the last stage [rows, hidden] of each row's last position, then of the
        scored ones; the others hand on and return None, as for a step without rows."""
        forward = step.forward
        if self._pending is not None and self._links is not None:
            for pending in self._pending.due(forward):
                receive_tokens(self._links, self._state.tokens, pending)
        self._apply(forward)
        if not forward.slots:
            self._prove(step)
            return None
        assert self._model is not None, "no step with rows comes to a rank that sleeps"
        before = None if self._shard.first or self._links is None else self._links.receive_hidden(step.number)
        hidden = self._model.forward(make_batch(forward, self._state, step.sample.scored), self._pools, before)
        if self._shard.last or self._links is None:
            return hidden
        self._links.send_hidden(step.number, hidden)
        if self._pending is not None:
            self._pending.expect(step)
        return None

    def _prove(self, step: Step) -> None:
        """A step without rows goes every way that others go, with a number that says nothing: an idle group so learns
        of a link that is lost without a word, before a request does."""
        self._part.collective.gather(torch.zeros(1))
        if self._links is None:
            return
        if not self._shard.first:
            self._links.receive_hidden(step.number)
        if self._shard.last:
            self._links.send_sampled(Sampled(step.number, ()))
        else:
            self._links.send_hidden(step.number, torch.zeros(1, dtype=self._dtype))
        if self._pending is not None:
            self._pending.expect(step)

    def _apply(self, forward: Forward) -> None:
        if forward.zeroed:
            zeroed = torch.tensor(forward.zeroed)
            for pool in self._pools:
                pool[:, :, zeroed] = 0
        for admit in forward.admits:
            self._admit(admit)
        for blocks in forward.blocks:
            self._append(blocks)

    def _admit(self, admit: Admit) -> None:
        slot, sampling = admit.slot, admit.sampling
        self._state.tokens[slot, : len(admit.tokens)] = torch.tensor(admit.tokens)
        self._state.tables[slot] = self.blocks
        self._temperature[slot] = sampling.temperature
        self._top_k[slot] = sampling.top_k
        self._top_p[slot] = sampling.top_p
        self._seeds[slot] = _signed(sampling.seed)
        self._processors.admit(admit)
        self._logprobs.admit(admit)

    def _append(self, blocks: Blocks) -> None:
        end = blocks.first + len(blocks.blocks)
        self._state.tables[blocks.slot, blocks.first : end] = torch.tensor(blocks.blocks)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, vocabulary / ranks], float32, of what `forward` returned."""
        assert self._model is not None, "as in forward"
        return self._model.logits(hidden).float()

    @torch.inference_mode()
    def sample(self, step: Step, hidden: torch.Tensor, masks: MaskSource = no_masks) -> StepResult:
        """Of the rows that step.sample names; the ids are in the token pool then, and on their way to the first stage.

        hidden: what `forward` returned.
        """
        wanted, slots = step.sample, step.forward.slots
        prompts = self._logprobs.prompts(step, hidden, self.logits) if wanted.scored else ()
        if not wanted.rows:
            return StepResult(step.number, prompts=prompts)
        chosen = [slots[row] for row in wanted.rows]
        ends = [step.forward.starts[row] + step.forward.counts[row] for row in wanted.rows]
        everyone = len(wanted.rows) == hidden.shape[0]
        logits = self.logits(hidden if everyone else hidden[torch.tensor(wanted.rows)])
        raw = self._logprobs.raw(logits, chosen)
        if wanted.masked:
            bind(logits, wanted.masked, masks(step.number), self._part.first)
        self._processors.adjust(logits, chosen, ends)
        found, finite = sample(logits, self._draw(chosen, wanted), self._part)
        ids = tuple(found.tolist())
        self._state.tokens[chosen, ends] = found
        if self._links is not None:
            self._links.send_sampled(Sampled(step.number, ids))
        failed = tuple((~finite).nonzero().squeeze(1).tolist())
        return StepResult(step.number, ids, failed, self._logprobs.scores(raw, chosen, found), prompts)

    def _draw(self, chosen: list[int], wanted: Sample) -> Draw:
        slots = torch.tensor(chosen)
        return Draw(
            temperature=self._temperature[slots],
            top_k=self._top_k[slots],
            top_p=self._top_p[slots],
            seeds=self._seeds[slots],
            counters=torch.tensor(wanted.counters),
            min_p=self._processors.min_p(chosen),
        )


def _signed(seed: int) -> int:
    """The low 64 bits as int64."""
    low = seed & ((1 << 64) - 1)
    return low - (1 << 64) if low >= 1 << 63 else low
