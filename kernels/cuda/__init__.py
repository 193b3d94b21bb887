"""Kernels for NVIDIA GPUs. Each module wraps, as functions on tensors, the library of its name in csrc.

Process: a rank with a GPU. In and out: tensors on the device, on the current stream; most fit into a CUDA graph.
Imports: torch, and the protocol in kernels.backend. It knows nothing of requests.
"""
