"""What the ranks of a stage do together: sums and gathers, by gloo; and the protocol of links between stages.

Process: ranks. In: tensors. Out: the same, summed or gathered; PeerLost when a peer has gone.
Imports: torch, worker.messages.
"""
