"""The leader's gRPC process, `serve`: streams of routers, Join of the other pods, rings to the core.

Process: serve, of the leader's pod. In: Submit and Cancel from routers; outputs from the core. Out: requests to the
core; StepOutput and credit to routers; steps to other pods. Imports: worker.membership, worker.ipc, worker.messages. No
torch.
"""
