"""A model: its folder, which part of it a rank holds, its weights, and the decoder that runs it.

Process: ranks; of its packages, `folder` and `sharding` serve every process. In: a folder; token ids and positions.
Out: parameters; hidden states and logits. Imports: kernels, worker.distributed, worker.config, worker.errors.
"""
