"""Which pods form a group, over gRPC: the leader's and the pods' sides of Join, and the group's status.

Process: leader.py: the leader's server; pod.py and status.py: supervisors. In: messages of proto/v1/group.proto. Out:
the same. Imports: worker.lifecycle, worker.ipc, worker.config, worker.tls. No torch.
"""
