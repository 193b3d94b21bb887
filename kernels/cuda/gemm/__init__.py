"""Products of few rows with large weights on NVIDIA GPUs, at the speed of their memory.

Process: a rank with a GPU. In: activations and a packed weight. Out: their product, with norm or sum included.
Imports: torch and kernels.cuda's library.
"""
