"""The process `core`, the engine's loop: requests in, schedule, step to the ranks, result, update, outputs to the
server.

Process: core, of the leader's pod. In: requests and results from rings. Out: steps and outputs on rings.
Imports: worker.scheduler, worker.ipc, worker.messages, worker.models.folder; llguidance. No torch.
"""
