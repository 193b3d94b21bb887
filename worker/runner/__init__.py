"""A rank's device side: a loaded model that runs steps in order; base.py is the protocol that all runners keep.

Process: rank. In: Step. Out: StepResult, later. Imports: torch, kernels, worker.models, worker.distributed,
worker.devices, worker.messages; not worker.scheduler.
"""
