"""What GPUs exchange: sums and rows within a stage, activations and ids between stages.

Process: a rank with a GPU. In: tensors and the peers' memory handles. Out: the same tensors, summed or passed on.
Imports: torch, kernels.cuda's library and checks, and step_layout.
"""
