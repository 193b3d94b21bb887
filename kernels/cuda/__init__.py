"""Kernels for NVIDIA GPUs. Each module wraps one library of csrc as functions on tensors.

Process: a rank with a GPU. In and out: tensors on the device, on the current stream; most fit into a CUDA graph.
Imports: torch, and the protocol in kernels.backend. It knows nothing of requests.
"""
