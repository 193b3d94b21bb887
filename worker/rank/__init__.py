"""The process of a rank, and the process that ranks are forked from, which has imported PyTorch once.

Process: fork server and rank. In: steps from a ring. Out: results on a ring. Imports: worker.runner, worker.models,
worker.distributed, worker.ipc, worker.messages; torch only after the start.
"""
