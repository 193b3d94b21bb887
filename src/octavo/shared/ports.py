"""Ports that a worker derives from the port of its `--group`, and that the operator opens for it."""

RENDEZVOUS_OFFSET = 99  # of the ranks of a stage
FIRST_RANK_OFFSET = 100  # of the pod's first rank; the next rank has the next port
