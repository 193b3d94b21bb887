"""A model's shape as plain values: fields of config.json, and the tensors that an architecture has.

Process: every process that reads a model's folder. In: JSON objects. Out: frozen values. Imports: worker.errors. No
torch.
"""
