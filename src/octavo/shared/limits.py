"""Limits that several components keep: each is checked where it is first known, and means the same everywhere."""

MAX_RANKS = 64  # of a group: the worker's shared board has so many slots
MAX_LOGPROBS = 20  # log-probabilities per token
