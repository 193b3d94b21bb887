"""Kernels for NVIDIA GPUs. Each module wraps one library of csrc, or one Triton kernel, as functions on tensors."""
