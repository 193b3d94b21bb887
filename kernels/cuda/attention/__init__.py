"""Attention on NVIDIA GPUs: prefill and decode over the paged pool, and rotary positions written into it.

Process: a rank with a GPU. In: queries, the KV pool, and a step's rows on the device. Out: attention's output.
Imports: torch, kernels.cuda's library and checks, and step_layout.
"""
