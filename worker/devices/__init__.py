"""What a device offers, found without the seconds that importing PyTorch takes: GPUs, memory, blocks of KV.

Process: supervisor, ranks, `octavo run`. In: files of the system, flags, a model's shape. Out: counts and bytes.
Imports: worker.models.config, worker.models.sharding, worker.config. No torch at import.
"""
