"""A rank's device side on a CPU: steps run where they are issued."""
