"""A model's folder, read and checked without torch: config.json, tensor headers, the small text files.

Process: supervisor, leader's server, core, ranks. In: a path. Out: frozen values, or a ModelError that names the file.
Imports: worker.models' architectures and linear methods, worker.errors. No torch, no network.
"""
