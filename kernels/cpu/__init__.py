"""The backend for CPUs: our own kernels where they are built, else PyTorch's operations; and sums for digests.

Process: a rank without a GPU. In: float32 or bfloat16 tensors and the layout of a step. Out: tensors.
Imports: torch, the protocol in kernels.backend, and the layouts in kernels.paged and kernels.rope.
"""
