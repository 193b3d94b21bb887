"""Kernels for NVIDIA GPUs. Each module wraps one library of csrc as functions on tensors."""
