"""The links between the stages of a pipeline, over gRPC: one listener and one sender a rank.

Process: ranks. In: activations and sampled ids. Out: the same, at the next stage, in order.
Imports: worker.distributed, worker.config, worker.tls.
"""
