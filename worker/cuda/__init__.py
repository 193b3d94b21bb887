"""A rank's device side on an NVIDIA GPU: nothing of a step waits for the host."""
