"""A model: a module for each architecture, its weights, and the decoder that runs its layers.

Process: ranks; modules of architectures, and of its packages all but `linear_methods`' products, serve every process.
In: a folder; token ids and positions. Out: parameters; hidden states and logits. Imports: kernels, worker.distributed,
worker.config, worker.errors.
"""
