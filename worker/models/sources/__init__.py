"""From a model's uri to its folder on this machine: a class for each scheme that a worker reads.

Process: supervisor, and `octavo run`. In: a uri. Out: a folder, or a ModelError that names the uri.
Imports: octavo.shared, octavo.bundled, worker.errors. No torch.
"""
