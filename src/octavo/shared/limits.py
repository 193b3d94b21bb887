"""Limits and ports that components keep: each is checked where it is first known, and is everywhere the same."""

MAX_RANKS = 64  # of a group: the worker's shared board has so many slots
MAX_LOGPROBS = 20  # log-probabilities per token

# Seconds between two tokens of a request that may be promised.
LEAST_TOKEN_INTERVAL_S, MOST_TOKEN_INTERVAL_S = 0.001, 60.0

# Ports that a worker derives from the port of its `--group`, and that the operator opens for it.
RENDEZVOUS_OFFSET = 99  # of the ranks of a stage
FIRST_RANK_OFFSET = 100  # of the pod's first rank; the next rank has the next port
