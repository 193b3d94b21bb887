"""How a linear layer is stored and computed: a module for each method, chosen by config.json.

Process: ranks; the tensors of a method: every process that reads a model's folder. In: a linear layer's shape, then its
tensors. Out: names with shapes and splits, then products. Imports: kernels, worker.models.config. No torch at import.
"""
