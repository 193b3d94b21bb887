"""One pass of the model over a bucket of rows, launched kernel by kernel or replayed as a graph.

    packed -> prepare -> divide attention's work -> layers -> head -> sample -> ids, failed

Of a pipeline the first stages end with the layers, and the others begin with the hidden states that came (`arrived`).
A bucket has fixed sizes; how much of it is real stands on the device. Graphs share one pool of memory: they run one
after another, and what they leave in it is not read.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from octavo.kernels.cuda.attention.decode import decode_plan, new_decode_plan
from octavo.kernels.cuda.attention.paged import DevicePaged, WorkPartition
from octavo.kernels.cuda.attention.prefill import new_prefill_tiles, prefill_plan
from octavo.kernels.cuda.step_layout.prepare import DeviceState, prepare_step
from octavo.kernels.cuda.step_layout.steps import StepBuffers, packed_words
from octavo.worker.messages.graphs import Graph
from octavo.worker.models.attention import Batch
from octavo.worker.models.decoder import Decoder
from octavo.worker.runner.cuda.buffers import StepLayout, unowned
from octavo.worker.runner.cuda.head import ForwardOutput, Head


class ModelForward:
    def __init__(
        self, model: Decoder, pools: Sequence[torch.Tensor], state: DeviceState, heads: int, rows: int, tokens: int,
        device: torch.device, head: Head | None, arrived: torch.Tensor | None,
    ) -> None:  # fmt: skip
        """rows, tokens: of the largest step. head: None where another stage samples. arrived: [tokens, hidden], what
        the stage before computed; None on the first."""
        self._model, self._pools, self.state = model, pools, state
        self._head, self._arrived = head, arrived
        self._most = Graph(rows, tokens)
        self.layout = StepLayout(rows, tokens, device)
        _, kv_heads, _, _, head_dim = pools[0].shape
        self._partitions = {
            window: WorkPartition(
                new_decode_plan(rows, heads, kv_heads, head_dim, pools[0].dtype, device, window),
                new_prefill_tiles(tokens, rows, heads, pools[0], window),
            )
            for window in sorted(model.windows)
        }
        self._graphs: dict[Graph, tuple[torch.cuda.CUDAGraph, ForwardOutput]] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def warm_up(self) -> None:
        """The largest pass, of padding alone."""
        self.layout.packed.zero_()
        self.run(self._most)

    def run(self, bucket: Graph) -> ForwardOutput:
        """Launch the pass over what `layout.packed` says."""
        step = self.layout.view(bucket)
        last = None if bucket.rows == bucket.tokens else step.sample_tokens
        return self._end(self._forward(bucket, step, last), step)

    def run_all_hidden(self, bucket: Graph) -> ForwardOutput:
        """The same pass, which keeps the hidden states of all its tokens."""
        step = self.layout.view(bucket)
        hidden = self._forward(bucket, step, None)
        last = hidden if self._head is None else hidden.index_select(0, step.sample_tokens)
        return self._end(last, step)._replace(hidden=hidden)

    def _end(self, hidden: torch.Tensor, step: StepBuffers) -> ForwardOutput:
        return ForwardOutput(hidden=hidden) if self._head is None else self._head.sample(hidden, step, self.state)

    def logits_of(self, hidden: torch.Tensor) -> torch.Tensor:
        """[t, vocabulary] of hidden states [t, hidden]."""
        return self._model.logits(hidden)

    def logits(self, bucket: Graph) -> torch.Tensor:
        """The same pass, but the logits of all its tokens [tokens, vocabulary], and nothing sampled."""
        return self._model.logits(self._forward(bucket, self.layout.view(bucket), None))

    def _forward(self, bucket: Graph, step: StepBuffers, last: torch.Tensor | None) -> torch.Tensor:
        state = self.state
        prepare_step(self.layout.packed[: packed_words(bucket.rows, bucket.rows)], state, step)
        several = bucket.rows < bucket.tokens
        for partition in self._partitions.values():
            decode_plan(partition.decode, step.header, step.row_slots, step.lengths, state.tables)
            if several and partition.tiles is not None:
                prefill_plan(partition.tiles, step.header, step.row_slots, step.starts, step.counts, step.begins)
        partitions = self._partitions
        if not several:
            partitions = {window: replace(partition, tiles=None) for window, partition in partitions.items()}
        paged = DevicePaged(step, state.tables, partitions)
        arrived = None if self._arrived is None else self._arrived[: bucket.tokens]
        return self._model.forward(Batch(step.ids, step.positions, paged, last), self._pools, arrived)

    def capture(self, bucket: Graph) -> None:
        """Make the graph of a bucket; a pass of padding first, so that nothing is loaded while it is recorded."""
        graph = torch.cuda.CUDAGraph()
        self.layout.packed.zero_()
        self.run(bucket)
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="relaxed"):
            output = self.run(bucket)
        # The graphs after this one are to have the memory of these, too.
        logits, hidden = (None if x is None else unowned(x) for x in (output.logits, output.hidden))
        self._graphs[bucket] = graph, output._replace(logits=logits, hidden=hidden)

    def replay(self, bucket: Graph) -> ForwardOutput:
        """What it returns is overwritten by the next pass."""
        graph, output = self._graphs[bucket]
        graph.replay()
        return output
